// Reads histories as `jostle report --format porcupine` writes them, and asks Porcupine
// whether each is one of a lock: whether every operation can have taken effect at one
// moment between its call and its return, such that nobody acquires what is owned.
//
// Exit code 0: all are; 1: one is not, which is named; 2: what was read is no history.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	History int    `json:"history"`
	Target  string `json:"target"`
	Fault   string `json:"fault"`
	Client  int    `json:"client"`
	Op      string `json:"op"`
	Call    int64  `json:"call_ns"`
	Return  *int64 `json:"return_ns"`
	OK      *bool  `json:"ok"`
}

// Nobody owns it.
const free = -1

// The state is the owner. An operation of unknown outcome may have done nothing.
var lock = porcupine.Model{
	Init: func() interface{} { return free },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		owner, asked := state.(int), input.(line)
		switch asked.Op {
		case "acquire":
			return owner == free, asked.Client
		case "release":
			if owner == asked.Client {
				return true, free
			}
			// It succeeded only if it was the owner's.
			return asked.OK == nil, owner
		case "expire":
			if owner == asked.Client {
				return true, free
			}
			return true, owner
		}
		return false, owner
	},
}

func main() {
	histories := map[int][]porcupine.Operation{}
	names := map[int]string{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var read line
		if err := json.Unmarshal(input.Bytes(), &read); err != nil || read.Op == "" {
			fmt.Fprintf(os.Stderr, "no operation: %s\n", input.Text())
			os.Exit(2)
		}
		returned := int64(math.MaxInt64)
		if read.Return != nil {
			returned = *read.Return
		}
		// A client has one operation at a time; what the service does is nobody's.
		client := read.Client
		if read.Op == "expire" {
			client += 1 << 20
		}
		histories[read.History] = append(histories[read.History], porcupine.Operation{
			ClientId: client, Input: read, Call: read.Call, Output: nil, Return: returned,
		})
		names[read.History] = fmt.Sprintf("%s after %s", read.Target, read.Fault)
	}
	if err := input.Err(); err != nil || len(histories) == 0 {
		fmt.Fprintln(os.Stderr, "there is no history on standard input:", err)
		os.Exit(2)
	}
	wrong := 0
	for number, history := range histories {
		if porcupine.CheckOperationsTimeout(lock, history, time.Minute) != porcupine.Ok {
			fmt.Printf("history %d (%s) is none of a lock\n", number, names[number])
			wrong++
		}
	}
	fmt.Printf("%d of %d histories are those of a lock\n", len(histories)-wrong, len(histories))
	if wrong > 0 {
		os.Exit(1)
	}
}
