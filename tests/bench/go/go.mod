module gpuscape.io/bench/idle-extender

go 1.24.0
