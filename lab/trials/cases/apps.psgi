# For starman: takes 20 ms for a request.
sub { select undef, undef, undef, 0.02; [200, ['Content-Length' => 6], ["hello\n"]] }
