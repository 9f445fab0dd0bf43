// An echo server on io_uring, with liburing: `server HOST PORT`.
#include <arpa/inet.h>
#include <liburing.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART = 65536 };
enum step { ACCEPT, RECEIVE, SEND };

struct task {
    enum step step;
    int fd, length, sent;
    unsigned char bytes[PART];
};

static struct io_uring ring;

static void submit(struct task *task) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    if (task->step == ACCEPT) io_uring_prep_accept(entry, task->fd, NULL, NULL, 0);
    if (task->step == RECEIVE) io_uring_prep_recv(entry, task->fd, task->bytes, PART, 0);
    if (task->step == SEND)
        io_uring_prep_send(entry, task->fd, task->bytes + task->sent, task->length - task->sent,
                           MSG_NOSIGNAL);
    io_uring_sqe_set_data(entry, task);
    io_uring_submit(&ring);
}

static void complete(struct task *task, int result) {
    if (task->step == ACCEPT) {
        struct task *connection = calloc(1, sizeof *connection);
        connection->step = RECEIVE;
        connection->fd = result;
        submit(connection);
    } else if (result <= 0) {
        close(task->fd);
        free(task);
        return;
    } else if (task->step == RECEIVE) {
        task->step = SEND;
        task->length = result;
        task->sent = 0;
    } else {
        task->sent += result;
        if (task->sent == task->length) task->step = RECEIVE;
    }
    submit(task);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    struct task *listener = calloc(1, sizeof *listener);
    listener->fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener->fd, (struct sockaddr *)&address, sizeof address) != 0) return 1;
    if (listen(listener->fd, 64) != 0 || io_uring_queue_init(256, &ring, 0) != 0) return 1;
    submit(listener);
    for (;;) {
        struct io_uring_cqe *entry;
        if (io_uring_wait_cqe(&ring, &entry) != 0) continue;
        struct task *task = io_uring_cqe_get_data(entry);
        int result = entry->res;
        io_uring_cqe_seen(&ring, entry);
        complete(task, result);
    }
}
