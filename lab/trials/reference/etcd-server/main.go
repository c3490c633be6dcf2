// A current etcd, since Debian's is of 2020: the server's own main program, in the version
// that go.mod names. `cargo xtask peers --clients` and `cargo xtask long` build it as
// target/peers/etcd-server/etcd.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
