// Echo server and client on the streams of Node.
const crypto = require('crypto');
const fs = require('fs');
const net = require('net');

const [role, host, port, file, bytes, connections] = process.argv.slice(2);

function chunk(job, at, limit) {
  const start = at % job.pattern.length;
  return job.pattern.subarray(start, Math.min(start + limit, start + job.bytes - at));
}

// Sends a stream with back-pressure, and ends it.
function stream(socket, job, at) {
  while (at < job.bytes) {
    const part = chunk(job, at, ((at * 7919) % 65536) + 1);
    at += part.length;
    if (!socket.write(part)) {
      socket.once('drain', () => stream(socket, job, at));
      return;
    }
  }
  socket.end();
}

function client(job) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port, allowHalfOpen: true });
    const hash = crypto.createHash('sha256');
    let sent = 0;
    let received = 0;
    let round = 0;
    const next = () => {
      if (round === 20) {
        round += 1;
        stream(socket, job, sent);
      } else if (round < 20) {
        const part = chunk(job, sent, round * 37 + 1);
        round += 1;
        sent += part.length;
        socket.write(part);
      }
    };
    socket.on('connect', next);
    socket.on('error', reject);
    socket.on('data', (part) => {
      hash.update(part);
      received += part.length;
      if (received === sent) next();
    });
    socket.on('end', () => resolve(`${received} ${hash.digest('hex')}`));
  });
}

if (role === 'server') {
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    socket.pipe(socket);
  });
  server.listen(Number(port), host);
  process.on('SIGTERM', () => process.exit(0));
} else {
  const job = { pattern: fs.readFileSync(file), bytes: Number(bytes) };
  const all = Array.from({ length: Number(connections) }, () => client(job));
  Promise.all(all).then((lines) => {
    lines.forEach((line, at) => console.log(`${at} ${line}`));
    process.exit(0);
  }, (error) => {
    console.error(error);
    process.exit(1);
  });
}
