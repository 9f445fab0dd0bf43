import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The client of the echo programs, with two threads for each connection. */
final class EchoClient {
    private final byte[] pattern;
    private final long length;
    private long sent;

    private EchoClient(byte[] pattern, long length) {
        this.pattern = pattern;
        this.length = length;
    }

    static void run(String[] arguments) throws Exception {
        byte[] pattern = Files.readAllBytes(Path.of(arguments[3]));
        long length = Long.parseLong(arguments[4]);
        var threads = Executors.newCachedThreadPool();
        List<Future<String>> lines = new ArrayList<>();
        for (int at = 0; at < Integer.parseInt(arguments[5]); at++) {
            lines.add(threads.submit(() -> new EchoClient(pattern, length)
                .exchange(new Socket(arguments[1], Integer.parseInt(arguments[2])))));
        }
        for (int at = 0; at < lines.size(); at++) {
            System.out.println(at + " " + lines.get(at).get());
        }
        System.exit(0);
    }

    /** Writes the next part of the stream, and returns its size. */
    private int send(OutputStream output, long limit) throws Exception {
        int start = (int) (sent % pattern.length);
        int size = (int) Math.min(Math.min(limit, length - sent), pattern.length - start);
        output.write(pattern, start, size);
        sent += size;
        return size;
    }

    private String exchange(Socket socket) throws Exception {
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        InputStream input = socket.getInputStream();
        OutputStream output = socket.getOutputStream();
        long received = 0;
        for (int round = 0; round < 20; round++) {
            byte[] answer = input.readNBytes(send(output, round * 37 + 1));
            hash.update(answer);
            received += answer.length;
        }
        Thread writer = new Thread(() -> {
            try {
                while (sent < length) {
                    send(output, sent * 7919 % 65536 + 1);
                }
                socket.shutdownOutput();
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
        writer.start();
        byte[] buffer = new byte[65536];
        int size;
        while ((size = input.read(buffer)) > 0) {
            hash.update(buffer, 0, size);
            received += size;
        }
        writer.join();
        socket.close();
        return received + " " + HexFormat.of().formatHex(hash.digest());
    }
}
