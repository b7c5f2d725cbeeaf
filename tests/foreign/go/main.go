// The links between a node's GPUs as go-gpuallocator finds them by itself, through NVML and sysfs.
//
// Writes {"devices": ["GPU-a", "GPU-b"], "links": [[[], [6, 10]], [[6, 10], []]]} to standard
// output: links[i][j] are the link types from device i to device j by their numbers in the library.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
)

type seen struct {
	Devices []string   `json:"devices"`
	Links   [][][]uint `json:"links"`
}

func main() {
	devices, err := gpuallocator.NewDevices()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found := seen{Devices: []string{}, Links: [][][]uint{}}
	for i, device := range devices {
		found.Devices = append(found.Devices, device.UUID)
		row := make([][]uint, len(devices))
		for j := range devices {
			row[j] = []uint{}
			for _, link := range devices[i].Links[j] {
				row[j] = append(row[j], uint(link.Type))
			}
		}
		found.Links = append(found.Links, row)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}
