%% Echo server and client on gen_tcp: passive sockets, and an active one for the stream.
-module(foreign_echo).
-export([main/0]).

main() ->
    [Role, Host, Port | Rest] = init:get_plain_arguments(),
    {ok, Address} = inet:parse_address(Host),
    case Role of
        "server" -> serve(Address, list_to_integer(Port));
        "client" -> clients(Address, list_to_integer(Port), Rest), halt(0)
    end.

serve(Address, Port) ->
    Options = [binary, {ip, Address}, {active, false}, {reuseaddr, true}, {backlog, 64}],
    {ok, Listener} = gen_tcp:listen(Port, Options),
    accept(Listener).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Echo = spawn(fun() -> receive go -> echo(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Echo),
    Echo ! go,
    accept(Listener).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Part} ->
            _ = gen_tcp:send(Socket, Part),
            echo(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

clients(Address, Port, [File, Bytes, Connections]) ->
    {ok, Pattern} = file:read_file(File),
    Self = self(),
    Length = list_to_integer(Bytes),
    All = lists:seq(0, list_to_integer(Connections) - 1),
    [spawn_link(fun() -> Self ! {At, client(Address, Port, Pattern, Length)} end) || At <- All],
    [receive {At, {Size, Hash}} ->
        io:format("~b ~b ~s~n", [At, Size, string:lowercase(binary:encode_hex(Hash))])
     end || At <- All].

client(Address, Port, Pattern, Length) ->
    {ok, Socket} = gen_tcp:connect(Address, Port, [binary, {active, false}]),
    {Sent, Sha} = rounds(Socket, Pattern, Length, 0, 0, crypto:hash_init(sha256)),
    spawn_link(fun() -> stream(Socket, Pattern, Length, Sent) end),
    ok = inet:setopts(Socket, [{active, true}]),
    receive_all(Socket, Sent, Sha).

chunk(Pattern, Length, Sent, Limit) ->
    Start = Sent rem byte_size(Pattern),
    Size = lists:min([Limit, Length - Sent, byte_size(Pattern) - Start]),
    binary:part(Pattern, Start, Size).

rounds(_, _, _, 20, Sent, Sha) -> {Sent, Sha};
rounds(Socket, Pattern, Length, Round, Sent, Sha) ->
    Part = chunk(Pattern, Length, Sent, Round * 37 + 1),
    ok = gen_tcp:send(Socket, Part),
    {ok, Answer} = gen_tcp:recv(Socket, byte_size(Part)),
    Next = crypto:hash_update(Sha, Answer),
    rounds(Socket, Pattern, Length, Round + 1, Sent + byte_size(Part), Next).

stream(Socket, _, Length, Length) -> ok = gen_tcp:shutdown(Socket, write);
stream(Socket, Pattern, Length, Sent) ->
    Part = chunk(Pattern, Length, Sent, Sent * 7919 rem 65536 + 1),
    ok = gen_tcp:send(Socket, Part),
    stream(Socket, Pattern, Length, Sent + byte_size(Part)).

receive_all(Socket, Size, Sha) ->
    receive
        {tcp, Socket, Part} ->
            receive_all(Socket, Size + byte_size(Part), crypto:hash_update(Sha, Part));
        {tcp_closed, Socket} -> {Size, crypto:hash_final(Sha)};
        {tcp_error, Socket, Reason} -> io:format(standard_error, "~p~n", [Reason]), halt(1)
    end.
