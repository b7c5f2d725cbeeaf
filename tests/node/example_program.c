// SPDX-License-Identifier: Apache-2.0
// What runs in the pods of examples/ on real nodes: prints the devices that it was given, and waits.
// With an argument it goes on when it is asked to end, until it is killed.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(int count, char **arguments) {
  (void)arguments;
  signal(SIGTERM, count > 1 ? SIG_IGN : end);
  const char *devices = getenv("NVIDIA_VISIBLE_DEVICES");
  printf("%s\n", devices ? devices : "no device");
  fflush(stdout);
  for (;;) pause();
}
