import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/** Serves the files of a folder with the server of the JDK: `HOST PORT FOLDER`. */
public final class HttpFiles {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress(arguments[0], port), 64);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            Path path = Path.of(arguments[2], exchange.getRequestURI().getPath());
            boolean exists = Files.isRegularFile(path);
            exchange.sendResponseHeaders(exists ? 200 : 404, exists ? Files.size(path) : -1);
            if (exists) {
                Files.copy(path, exchange.getResponseBody());
            }
            exchange.close();
        });
        server.start();
    }
}
