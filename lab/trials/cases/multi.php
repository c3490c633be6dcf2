<?php // A load generator by curl's multi interface: multi.php PORT CONNECTIONS SECONDS.
[, $port, $connections, $seconds] = $argv;
$host = getenv('CASE_HOST') ?: '127.0.0.1';
$end = microtime(true) + $seconds;
$multi = curl_multi_init();
for ($nth = 0; $nth < $connections; $nth++) {
    $one = curl_init("http://$host:$port/");
    curl_setopt($one, CURLOPT_RETURNTRANSFER, true);
    curl_multi_add_handle($multi, $one);
}
$done = 0;
while (microtime(true) < $end) {
    curl_multi_exec($multi, $running);
    while ($found = curl_multi_info_read($multi)) {
        $done++;
        curl_multi_remove_handle($multi, $found['handle']);
        curl_multi_add_handle($multi, $found['handle']);
        $running = 0;
    }
    if ($running > 0) curl_multi_select($multi, 0.1);
}
echo "$done requests\n";
