package lock

import (
	"regexp"
	"strconv"
	"sync"
)

// known is what this program knows of the locks of a session.
//
// A request that got no answer may have been granted. Asked again, the daemon
// refuses with `ALREADYHELD token mode`. The hold is that of the unanswered request,
// unless another part of this program has it: each token is given out once. A name
// is remembered as long as it is held, asked for or in doubt, so that a reply that
// comes late cannot claim what was released meanwhile.
type known struct {
	guard sync.Mutex
	names map[string]*knownName
}

type knownName struct {
	last    int64
	users   int
	inDoubt bool
}

// entry is that of a name. The guard is held.
func (k *known) entry(name string) *knownName {
	if k.names == nil {
		k.names = make(map[string]*knownName)
	}
	found := k.names[name]
	if found == nil {
		found = &knownName{last: -1}
		k.names[name] = found
	}
	return found
}

// ask begins a request for a name; forget ends it.
func (k *known) ask(name string) {
	k.guard.Lock()
	defer k.guard.Unlock()
	k.entry(name).users++
}

// doubt: a request got no answer; it may be granted at any later time.
func (k *known) doubt(name string) {
	k.guard.Lock()
	defer k.guard.Unlock()
	k.entry(name).inDoubt = true
}

// claim says whether the token is new; then it is this caller's alone, until forget.
func (k *known) claim(name string, token int64) bool {
	k.guard.Lock()
	defer k.guard.Unlock()
	return k.entry(name).claim(token)
}

func (n *knownName) claim(token int64) bool {
	if token <= n.last {
		return false
	}
	n.last = token
	n.users++
	return true
}

var alreadyHeld = regexp.MustCompile(`^ALREADYHELD (\d+) (\w+)`)

// adopt gives the token of an unanswered request that was granted, if a refusal
// tells of one.
func (k *known) adopt(name, mode, refusal string) (int64, bool) {
	found := alreadyHeld.FindStringSubmatch(refusal)
	if found == nil || found[2] != mode {
		return 0, false
	}
	token, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		return 0, false
	}
	k.guard.Lock()
	defer k.guard.Unlock()
	entry := k.entry(name)
	return token, entry.inDoubt && entry.claim(token)
}

// forget: a request has ended, or a claimed lock was released.
func (k *known) forget(name string) {
	k.guard.Lock()
	defer k.guard.Unlock()
	entry := k.entry(name)
	entry.users--
	if entry.users == 0 && !entry.inDoubt {
		delete(k.names, name)
	}
}
