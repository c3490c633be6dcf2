//! The attacks as data. The test in the module above demands a row for each command, and for
//! each figure of what the daemon does to clients unasked.

pub(super) struct Attack {
    /// User and password; empty: it does not log in.
    pub(super) user: &'static str,
    /// Connections that send the same together.
    pub(super) connections: usize,
    /// Each is a request, or raw bytes if it ends with a line break.
    pub(super) sends: &'static [&'static str],
    /// How often it sends all of them.
    pub(super) times: usize,
    /// The first connection's last reply, in short; empty: not looked at.
    pub(super) reply: &'static str,
    /// The figure of INFO that counts it.
    pub(super) counted: &'static str,
    /// The answers that others get then: user (`-`: a newcomer), request, reply (`?`: no error).
    pub(super) then: &'static [(&'static str, &'static str, &'static str)],
}

/// A row: user, connections, times, requests, the last reply; then the figure that counts
/// it, and what others are answered.
macro_rules! attacks {
    ($($user:literal $connections:literal x $times:literal $($sends:literal)+ => $reply:literal
       $(counts $counted:literal)? $(then $who:literal $asks:literal => $told:literal)*;)*) => {
        pub(super) const ATTACKS: &[Attack] = &[$(Attack {
            user: $user,
            connections: $connections,
            sends: &[$($sends),+],
            times: $times,
            reply: $reply,
            counted: concat!($($counted)?),
            then: &[$(($who, $asks, $told)),*],
        }),*];
    };
}

// Users have three quarters of 200 connections, 100 sessions and 100 places in line.
attacks! {
    // Work: others waited 5 s for their replies, and lost their leases.
    "low l" 40 x 300 "MULTI" "INFO" "EXEC" => "EXECABORT";
    "low l" 40 x 300 "MULTI" "COMMAND" "CONFIG GET *" "HOLDER low:x" "EXEC" => "EXECABORT";
    "low l" 40 x 300 "MULTI" "SESSION LIST" "DISCARD" => "OK";
    "low l" 40 x 20 "INFO" => "";
    "low l" 40 x 20 "CONFIG GET *" => "";
    "low l" 40 x 20 "COMMAND" => "";
    "low l" 40 x 20 "CLIENT INFO" "ACL WHOAMI" "HOLDER low:x" => "Array([])";
    "low l" 40 x 20 "PLACE low:x ID 1" => "nil";
    "low l" 40 x 4000 "PING" => "PONG";
    "low l" 40 x 9000 "PING\r\n" => "PONG";
    "low l" 40 x 1800 "ECHO 0123456789" => "0123456789";
    "low l" 40 x 2000 "SELECT 0" => "OK";
    "low l" 40 x 2000 "NONSENSE" => "ERR";
    "low l" 1 x 500 "LOCKALL 3 low:1 low:2 low:3" "UNLOCK low:1" "UNLOCK low:2" "UNLOCK low:3" => "1";
    "" 40 x 9000 "PING\r\n" => "NOAUTH";
    "" 40 x 1000 "HELLO 3" "RESET" => "RESET";
    // Guesses, whose replies are delayed.
    "" 40 x 1 "AUTH app wrong" => "" counts "auth_failures";
    "" 40 x 1 "HELLO 3 AUTH boss wrong" => "" counts "auth_failures";
    // What belongs to others.
    "low l" 9 x 99 "LOCK app:a" "TRYLOCK app:a" "UNLOCK app:held" "RENEW app:held 1 TTL 1" "PLACE app:held ID 1" => "NOPERM";
    "low l" 9 x 99 "FORCEUNLOCK app:held" "CONTENTION" "WAITERS app:held" "HOLDERS" "HOLDER app:held" => "NOPERM";
    "low l" 9 x 99 "ACL LIST" "CLIENT LIST" "CLIENT KILL 1" "SHUTDOWN" "HANDOVER" "HA STATUS" "LEASES FORGET" => "NOPERM";
    "low l" 9 x 99 "SESSION CLOSE USER app" "SESSION LIST" => "NOPERM";
    // What is shared: 10,000 sessions of one user left none to the others, and stayed.
    "low l" 10 x 90 "SESSION OPEN TTL 600000" => "QUOTA" counts "refused"
        then "app" "SESSION OPEN TTL 600000" => "?"
        then "boss" "SESSION CLOSE USER app" => "1"
        then "boss" "SESSION CLOSE USER low" => "75"
        then "boss" "SESSION CLOSE USER low" => "0";
    "low l" 1 x 1 "SESSION OPEN TTL 600001" => "ERR";
    "low l" 90 x 1 "LOCK low:x" => "?" counts "refused"
        then "app" "LOCK app:lease WAIT 1" => "nil";
    "low l" 149 x 1 "PING" => "PONG"
        then "-" "AUTH low l" => "OK"
        then "-" "AUTH low l" => "QUOTA"
        then "-" "AUTH app a" => "OK";
    // The end of connections.
    "low l" 40 x 1 "QUIT" => "OK";
    "" 40 x 1 "POST / HTTP/1.1\r\n" => "" counts "closed_http";
    "" 40 x 1 "*2\r\n$4\r\nECHO\r\n$999999999\r\n" => "ERR" counts "closed_request";
    "" 250 x 1 "*2\r\n$4\r\nEC\r\n" => "" counts "closed_slow";
}

/// The daemon's unasked acts in other tests, with flags of their own: `hostile` (the first) and
/// `endurance`, `commands/admin`.
pub(super) const ELSEWHERE: &[&str] = &[
    "closed_handshake",
    "closed_idle",
    "closed_output",
    "rejected_connections",
    "closed_killed",
];
