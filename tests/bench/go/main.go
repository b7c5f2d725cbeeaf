// A scheduler extender that does nothing, as the floor of what any extender costs.
//
//	idle-extender -listen 127.0.0.1:8443 -certificate FILE -client-ca FILE [-answer zeros]
//
// It speaks what gpuscape's speaks: HTTP/1.1 over TLS with client certificates, prioritize
// alone, answers with their length. By default it reads the request without looking into it
// and answers that no node has a score. With -answer zeros it reads the names in it and gives
// each of them a 0, the least that an extender with an opinion has to do.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

type arguments struct {
	NodeNames []string
}

type score struct {
	Host  string
	Score int64
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address and port")
	certificate := flag.String("certificate", "", "file with the server's certificate and key")
	authority := flag.String("client-ca", "", "file with the authority of clients")
	kind := flag.String("answer", "none", "none, or zeros")
	flag.Parse()
	answer := map[string]func(io.Reader) ([]byte, error){"none": none, "zeros": zeros}[*kind]
	if answer == nil {
		log.Fatalf("-answer is %q, not none or zeros", *kind)
	}
	trusted, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(trusted)
	server := http.Server{
		Addr:      *listen,
		Handler:   handler(answer),
		TLSConfig: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients},
		// not nil: no HTTP/2
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *certificate))
}

func handler(answer func(io.Reader) ([]byte, error)) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		body, err := answer(request.Body)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		response.Header().Set("Content-Type", "application/json")
		response.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = response.Write(body)
	}
}

func none(body io.Reader) ([]byte, error) {
	_, err := io.Copy(io.Discard, body)
	return []byte("[]"), err
}

func zeros(body io.Reader) ([]byte, error) {
	var asked arguments
	if err := json.NewDecoder(body).Decode(&asked); err != nil {
		return nil, err
	}
	scores := make([]score, len(asked.NodeNames))
	for at, name := range asked.NodeNames {
		scores[at].Host = name
	}
	return json.Marshal(scores)
}
