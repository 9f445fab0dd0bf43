import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/** An echo server with one selector. */
public final class NioEcho {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("client")) {
            EchoClient.run(arguments);
        }
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        int port = Integer.parseInt(arguments[2]);
        listener.bind(new InetSocketAddress(arguments[1], port), 64);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    channel.configureBlocking(false);
                    ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
                    channel.register(selector, SelectionKey.OP_READ, buffer);
                } else {
                    echo(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    private static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        try {
            if (key.isReadable() && channel.read(buffer) < 0) {
                channel.close();
                return;
            }
            buffer.flip();
            channel.write(buffer);
            buffer.compact();
            int writes = buffer.position() > 0 ? SelectionKey.OP_WRITE : 0;
            int reads = buffer.hasRemaining() ? SelectionKey.OP_READ : 0;
            // A selector does not report the end of the stream while bytes are owed.
            key.interestOps(writes != 0 ? writes : reads);
        } catch (IOException error) {
            channel.close();
        }
    }
}
