// A load generator: client PORT CONNECTIONS SECONDS. With `serve PORT US`: a server that uses so
// much time of a CPU for each request. With `lock PORT MS`: it holds its one lock for so long.
package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var host = cmp.Or(os.Getenv("CASE_HOST"), "127.0.0.1")

func serve(port string, us int) {
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		for end := time.Now().Add(time.Duration(us) * time.Microsecond); time.Now().Before(end); {
		}
		answer.Write([]byte("hello\n"))
	})
	http.ListenAndServe(host+":"+port, nil)
}

func lock(port string, ms int) {
	var one sync.Mutex
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		one.Lock()
		time.Sleep(time.Duration(ms) * time.Millisecond)
		one.Unlock()
		answer.Write([]byte("hello\n"))
	})
	http.ListenAndServe(host+":"+port, nil)
}

func main() {
	if os.Args[1] == "serve" {
		us, _ := strconv.Atoi(os.Args[3])
		serve(os.Args[2], us)
	}
	if os.Args[1] == "lock" {
		ms, _ := strconv.Atoi(os.Args[3])
		lock(os.Args[2], ms)
	}
	connections, _ := strconv.Atoi(os.Args[2])
	seconds, _ := strconv.ParseFloat(os.Args[3], 64)
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var done atomic.Int64
	var all sync.WaitGroup
	for range connections {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				answer, err := client.Get("http://" + host + ":" + os.Args[1] + "/")
				if err != nil {
					continue
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				done.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Println(done.Load(), "requests")
}
