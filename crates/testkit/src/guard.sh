# keeps one server from outliving the test process. arguments: the signal that ends the server at once, the directory
# to remove, the server's command. orders come on standard input, one line each, and each gets one line as answer; the
# end of the input means that the test process is gone, however it ended.
#
# signals are ignored, so that nothing but that end of input ends the guard; the broken pipe too, since an answer to a
# dead test process must not end the guard before its server.
trap '' HUP INT TERM PIPE
ulimit -c 0
gentle=$1 directory=$2
shift 2
server=

# the server is our child and stays a zombie until we wait, so its number cannot belong to another process.
# it may have been stopped by a test: CONT lets it see the signal.
end_server() {
    [ -n "$server" ] || return
    kill -s "$signal" "$server"
    kill -s CONT "$server"
    wait "$server"
    server=
}

while read -r order; do
    case $order in
    start)
        end_server
        # a shell starts background commands with some signals ignored, so until the server has installed its
        # handlers only KILL is sure to reach it
        signal=KILL
        "$@" </dev/null >>"$directory/log" 2>&1 &
        server=$!
        echo "$server"
        ;;
    ready)
        signal=$gentle
        echo noted
        ;;
    stop)
        end_server
        echo stopped
        ;;
    esac
done

end_server
# children of a server that was killed may write for a moment longer
tries=0
until rm -rf "$directory" || [ $tries -ge 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
