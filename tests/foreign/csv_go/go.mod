module gpuscape.io/foreign/csv-reader

go 1.24.0
