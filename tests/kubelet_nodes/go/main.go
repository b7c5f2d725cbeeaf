// The allocation policy that NVIDIA's device plugin answers the kubelet with, as a program.
//
// One request a line on standard input, one answer a line on standard output, until the input
// ends. Nothing is kept between requests, so one process serves any number of nodes.
//
//	{"devices": ["GPU-a", "GPU-b"], "links": [[[], [6, 10]], [[6, 10], []]],
//	 "available": ["GPU-b", "GPU-a"], "required": [], "size": 2}
//
// links[i][j] are the link types from device i to device j by their numbers in go-gpuallocator.
// The order of available decides among sets of the same score. The answer is
// {"chosen": ["GPU-b", "GPU-a"]}, or {"error": "why"} where the policy finds nothing or panics.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"
)

type request struct {
	Devices   []string   `json:"devices"`
	Links     [][][]uint `json:"links"`
	Available []string   `json:"available"`
	Required  []string   `json:"required"`
	Size      int        `json:"size"`
}

type answer struct {
	Chosen []string `json:"chosen,omitempty"`
	Error  string   `json:"error,omitempty"`
}

func main() {
	requests := json.NewDecoder(bufio.NewReader(os.Stdin))
	answers := json.NewEncoder(os.Stdout)
	for {
		var asked request
		if err := requests.Decode(&asked); err != nil {
			return
		}
		chosen, err := allocate(asked)
		said := answer{Chosen: chosen}
		if err != nil {
			said = answer{Error: err.Error()}
		}
		if err := answers.Encode(said); err != nil {
			return
		}
	}
}

// allocate asks the policy. A panic, which ends the device plugin, is an error here.
func allocate(asked request) (chosen []string, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			chosen, err = nil, fmt.Errorf("the policy panicked: %v", panicked)
		}
	}()
	byID := devices(asked)
	available, err := named(byID, asked.Available)
	if err != nil {
		return nil, err
	}
	required, err := named(byID, asked.Required)
	if err != nil {
		return nil, err
	}
	for _, device := range gpuallocator.NewBestEffortPolicy().Allocate(available, required, asked.Size) {
		chosen = append(chosen, device.UUID)
	}
	if len(chosen) == 0 {
		return nil, errors.New("the policy found no set")
	}
	return chosen, nil
}

func devices(asked request) map[string]*gpuallocator.Device {
	made := make([]*gpuallocator.Device, len(asked.Devices))
	byID := map[string]*gpuallocator.Device{}
	for i, id := range asked.Devices {
		made[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		made[i].UUID = id
		byID[id] = made[i]
	}
	for i, row := range asked.Links {
		for j, types := range row {
			for _, number := range types {
				link := gpuallocator.P2PLink{GPU: made[j]}
				set(&link.Type, number)
				made[i].Links[j] = append(made[i].Links[j], link)
			}
		}
	}
	return byID
}

// set writes a number whose type cannot be named here: it is internal to the library.
func set[T ~uint](to *T, number uint) {
	*to = T(number)
}

func named(byID map[string]*gpuallocator.Device, ids []string) ([]*gpuallocator.Device, error) {
	found := make([]*gpuallocator.Device, 0, len(ids))
	for _, id := range ids {
		device, known := byID[id]
		if !known {
			return nil, fmt.Errorf("no device %s", id)
		}
		found = append(found, device)
	}
	return found, nil
}
