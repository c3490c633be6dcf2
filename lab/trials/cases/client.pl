# Load generators: client.pl lwp PORT PROCESSES SECONDS, client.pl split ..., or
# client.pl line|fresh ... LINE. A process for each connection: requests by LWP; the parts of a request
# in two segments; a line of text, of whose answer one piece is read; the same by new connections.
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes 'time';

my ($mode, $port, $processes, $seconds, $line) = @ARGV;
my $host = $ENV{CASE_HOST} // '127.0.0.1';
my $end = time + $seconds;

sub lwp {
    require LWP::UserAgent;
    my $agent = LWP::UserAgent->new(keep_alive => 1);
    return sub { $agent->get("http://$host:$port/") };
}

sub parts {
    my @parts = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => "$host:$port") or die "cannot connect: $!\n";
    return sub {
        syswrite($socket, $_) for @parts;
        sysread($socket, my $answer, 65536) or die "closed\n";
    };
}

sub fresh {
    return sub {
        until (eval { parts("$line\r\n")->(); 1 } or time > $end) { select undef, undef, undef, 0.01; }
    };
}

pipe(my $from, my $to);
for (1 .. $processes) {
    next if fork;
    my $one = $mode eq 'lwp' ? lwp()
        : $mode eq 'split' ? parts("GET / HTTP/1.1\r\nHost: here\r\n", "\r\n")
        : $mode eq 'fresh' ? fresh()
        : parts("$line\r\n");
    my $count = 0;
    while (time < $end) { $one->(); $count++; }
    syswrite($to, "$count\n");
    exit;
}
close $to;
my $sum = 0;
$sum += $_ while <$from>;
print "$sum requests\n";
