// Serves the files of a folder: `HOST PORT FOLDER WORKERS`. More than 0 workers form a cluster.
const cluster = require('cluster');
const fs = require('fs');
const http = require('http');

const [host, port, folder, workers] = process.argv.slice(2);

process.on('SIGTERM', () => process.exit(0));
if (cluster.isPrimary && Number(workers) > 0) {
  for (let at = 0; at < Number(workers); at += 1) cluster.fork();
} else {
  http.createServer((request, response) => {
    if (request.method === 'POST') {
      request.pipe(response);
      return;
    }
    fs.stat(folder + request.url, (error, status) => {
      response.writeHead(error ? 404 : 200, error ? {} : { 'Content-Length': status.size });
      if (error) response.end();
      else fs.createReadStream(folder + request.url).pipe(response);
    });
  }).listen(Number(port), host);
}
