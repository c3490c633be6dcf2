# For puma: takes 20 ms for a request.
run ->(_) { sleep 0.02; [200, { 'Content-Length' => '6' }, ["hello\n"]] }
