# SPDX-License-Identifier: Apache-2.0
"""Settings of a program: declared once, read from flags, environment and a YAML file.

A program declares its settings in one module of its own::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ActuatorSettings:
        socket: Path = setting(
            Path("/run/gpuscape/actuator.sock"), kinds.PATH, "Where it listens.", subject="Sockets"
        )
        step_seconds: float = setting(60.0, kinds.duration_kind("1s"), "Longest time for one step.")
        log_level: str = log_level()
        log_format: str = log_format()

    ACTUATOR_SETTINGS = ProgramSettings(ActuatorSettings)

From this follow the flag ``--step``, the variable ``GPUSCAPE_STEP``, the key ``step`` of the
settings file, help texts, the checks of every layer and their errors:
``ACTUATOR_SETTINGS.load(flags, environ)`` gives an ``ActuatorSettings`` or raises BadInput. The
command line adds the options by ``cli.options.program_settings(ACTUATOR_SETTINGS)``.
"""
