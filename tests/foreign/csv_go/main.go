// SPDX-License-Identifier: Apache-2.0

// Reads base64 texts, one a line, as CSV by Go's encoding/csv with the settings of a counters
// file, and prints for each the records with their first lines, and where reading ended.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
)

type record struct {
	Line   int      `json:"line"`
	Fields [][]byte `json:"fields"`
}

type reading struct {
	Records []record `json:"records"`
	Fault   int      `json:"fault"`
}

func read(text []byte) reading {
	reader := csv.NewReader(bytes.NewReader(text))
	reader.Comment = '#'
	reader.FieldsPerRecord = -1
	found := reading{Records: []record{}}
	for {
		fields, err := reader.Read()
		if err == io.EOF {
			return found
		}
		if err != nil {
			var fault *csv.ParseError
			if !errors.As(err, &fault) {
				log.Fatal(err)
			}
			found.Fault = fault.StartLine
			return found
		}
		line, _ := reader.FieldPos(0)
		one := record{Line: line}
		for _, field := range fields {
			one.Fields = append(one.Fields, []byte(field))
		}
		found.Records = append(found.Records, one)
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		text, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(read(text)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
