<?php
// Echo server on streams, and a client that uses its streams first, and then takes them over
// with the sockets extension, which PHP loads with RTLD_DEEPBIND.
[$_, $role, $host, $port] = $argv;

function serve(string $host, string $port): void
{
    $listener = stream_socket_server("tcp://$host:$port");
    $connections = [];
    while (true) {
        $readable = [$listener, ...$connections];
        $none = null;
        if (stream_select($readable, $none, $none, null) === false) {
            continue;
        }
        foreach ($readable as $stream) {
            if ($stream === $listener) {
                $connections[] = stream_socket_accept($listener);
                continue;
            }
            $part = fread($stream, 65536);
            for ($sent = 0; $sent < strlen($part); $sent += $length) {
                $length = @fwrite($stream, substr($part, $sent));
                if ($length === false) {
                    break;
                }
            }
            if ($part === '' || $part === false || $length === false) {
                unset($connections[array_search($stream, $connections, true)]);
                fclose($stream);
            }
        }
    }
}

function exchange(array $sockets, array &$hashes, string $part): void
{
    foreach ($sockets as $at => $socket) {
        for ($sent = 0; $sent < strlen($part); $sent += $length) {
            $length = socket_send($socket, substr($part, $sent), strlen($part) - $sent, 0);
            if ($length === false) {
                fwrite(STDERR, socket_strerror(socket_last_error($socket)));
                exit(1);
            }
        }
    }
    foreach ($sockets as $at => $socket) {
        for ($received = 0; $received < strlen($part); $received += $length) {
            $length = socket_recv($socket, $answer, strlen($part) - $received, 0);
            if (!$length) {
                fwrite(STDERR, "ended early");
                exit(1);
            }
            hash_update($hashes[$at], $answer);
        }
    }
}

if (!extension_loaded('sockets')) {
    fwrite(STDERR, "no sockets extension\n");
    exit(1);
}
if ($role === 'server') {
    serve($host, $port);
}
$pattern = file_get_contents($argv[4]);
[$bytes, $count] = [(int) $argv[5], (int) $argv[6]];
$streams = $sockets = $hashes = [];
for ($at = 0; $at < $count; $at++) {
    $streams[$at] = stream_socket_client("tcp://$host:$port");
    $sockets[$at] = socket_import_stream($streams[$at]);
    $hashes[$at] = hash_init('sha256');
}
for ($at = 0; $at < min(20_000, $bytes); $at += strlen($part)) {
    $part = substr($pattern, $at, min(1000, $bytes - $at));
    foreach ($streams as $number => $stream) {
        fwrite($stream, $part);
        hash_update($hashes[$number], stream_get_contents($stream, strlen($part)));
    }
}
for ($round = 0; $at < $bytes; $at += strlen($part), $round++) {
    $limit = $round < 20 ? $round * 37 + 1 : $at * 7919 % 32768 + 1;
    $part = substr($pattern, $at % strlen($pattern), min($limit, $bytes - $at));
    exchange($sockets, $hashes, $part);
}
foreach ($sockets as $at => $socket) {
    socket_shutdown($socket, 1);
    $end = socket_recv($socket, $answer, 1, 0);
    echo $end === 0 ? "$at $bytes " . hash_final($hashes[$at]) . "\n" : "no end: $end\n";
}
