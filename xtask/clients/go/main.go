// go-redis as it is: raw PORT MEANS. See xtask/src/clients/raw.rs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func said(reply any, err error) string {
	switch {
	case errors.Is(err, redis.Nil):
		return "nil"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprint(reply)
}

func must(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func several(ctx context.Context, client *redis.Client, act string, pipe redis.Pipeliner) {
	for n := range 10 {
		pipe.Do(ctx, "LOCK", fmt.Sprint(act, n), "TTL", 60000)
	}
	replies, err := pipe.Exec(ctx)
	must(err)
	granted := 0
	for n, reply := range replies {
		token, err := reply.(*redis.Cmd).Int64()
		must(err)
		if token > 0 {
			granted++
		}
		must(client.Do(ctx, "UNLOCK", fmt.Sprint(act, n), token).Err())
	}
	fmt.Println(act, granted)
}

// follow renews a lease for as long as it runs; see ../groups.py.
func follow(ctx context.Context, client *redis.Client) {
	token, err := client.Do(ctx, "LOCK", "job", "TTL", 20000).Int64()
	must(err)
	fmt.Println("token", token)
	for last := ""; ; time.Sleep(100 * time.Millisecond) {
		sent := time.Now()
		text := said(client.Do(ctx, "RENEW", "job", token, "TTL", 20000).Result())
		if ms := time.Since(sent).Milliseconds(); text != last || ms > 300 {
			fmt.Println(ms, text)
		}
		last = text
	}
}

func main() {
	ctx, address, means := context.Background(), "127.0.0.1:"+os.Args[1], os.Args[2]
	fmt.Println("version go-redis", redis.Version())
	if means == "group" {
		follow(ctx, redis.NewClient(&redis.Options{Addr: "locks:" + os.Args[1]}))
	}
	client := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 10 * time.Second})
	token, err := client.Do(ctx, "LOCK", "job", "TTL", 60000).Int64()
	must(err)
	if token > 0 {
		fmt.Println("lock granted")
	}
	fmt.Println("try", said(client.Do(ctx, "TRYLOCK", "job").Result()))
	fmt.Println("wait", said(client.Do(ctx, "LOCK", "job", "TTL", 60000, "WAIT", 100).Result()))
	fmt.Println("wrong", said(client.Do(ctx, "UNLOCK", "job", token+1).Result()))
	fmt.Println("unlock", said(client.Do(ctx, "UNLOCK", "job", token).Result()))
	several(ctx, client, "pipeline", client.Pipeline())
	several(ctx, client, "multi", client.TxPipeline())

	options := &redis.Options{Addr: address, ReadTimeout: 300 * time.Millisecond}
	within, cancel := ctx, context.CancelFunc(func() {})
	switch means {
	case "MaxRetries -1":
		options.MaxRetries = -1
	case "context":
		options.ReadTimeout = 10 * time.Second
		options.ContextTimeoutEnabled = true
		within, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
	}
	defer cancel()
	hasty, sent := redis.NewClient(options), time.Now()
	text := said(hasty.Do(within, "LOCK", "busy", "TTL", 60000, "WAIT", 5000).Result())
	fmt.Println("timeout", time.Since(sent).Milliseconds(), text)
	_, _ = io.ReadAll(os.Stdin)
}
