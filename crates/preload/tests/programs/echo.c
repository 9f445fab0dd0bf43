/* Echoes what comes (`server HOST PORT`), or sends and compares (`client HOST PORT`). Linked statically: no library is loaded into it. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 100000, MESSAGES = 300 };

static char sent[MOST], received[MOST];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t done = send(fd, bytes, length, 0);
        if (done < 0) fail("send");
        bytes += done;
        length -= done;
    }
}

static void serve(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) fail("accept");
        ssize_t length;
        while ((length = recv(fd, received, MOST, 0)) > 0) send_all(fd, received, length);
        close(fd);
    }
}

static void use(int fd) {
    for (int number = 1; number <= MESSAGES; number++) {
        size_t length = (size_t)number * number * 7 % MOST + 1;
        memset(sent, number, length);
        send_all(fd, sent, length);
        for (size_t done = 0; done < length;) {
            ssize_t more = recv(fd, received + done, length - done, 0);
            if (more <= 0) fail("recv");
            done += more;
        }
        if (memcmp(sent, received, length) != 0) {
            fprintf(stderr, "message %d came back with other bytes\n", number);
            exit(1);
        }
    }
    puts("done");
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
    if (inet_pton(AF_INET, arguments[2], &address.sin_addr) != 1) return 2;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (strcmp(arguments[1], "client") == 0) {
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
        use(fd);
        return 0;
    }
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
    if (listen(fd, 16) != 0) fail("listen");
    serve(fd);
}
