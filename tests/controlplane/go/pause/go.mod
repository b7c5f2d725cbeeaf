module gpuscape.io/controlplane/pause

go 1.26.0
