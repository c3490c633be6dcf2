// A load generator: client.js PORT CONNECTIONS SECONDS. With `serve PORT US`: a server of one
// thread that uses so much CPU time for each request. With `wait PORT MS`: it answers so much later.
const http = require('http');
const [first, second, third] = process.argv.slice(2);
const host = process.env.CASE_HOST || '127.0.0.1';

function serve(port, us) {
  http.createServer((request, response) => {
    const end = process.hrtime.bigint() + BigInt(us) * 1000n;
    while (process.hrtime.bigint() < end);
    response.end('hello\n');
  }).listen({ host, port, backlog: 1024 });
}

function wait(port, ms) {
  http.createServer((request, response) => setTimeout(() => response.end('hello\n'), ms))
    .listen({ host, port, backlog: 1024 });
}

function load(port, connections, seconds) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  const end = Date.now() + 1000 * seconds;
  let done = 0;
  const next = () => {
    if (Date.now() >= end) return agent.destroy();
    http.get({ host, port, agent }, (response) => {
      response.resume();
      response.on('end', () => { done += 1; next(); });
    }).on('error', () => {});
  };
  for (let nth = 0; nth < connections; nth += 1) next();
  process.on('exit', () => console.log(done, 'requests'));
}

if (first === 'serve') serve(Number(second), Number(third));
else if (first === 'wait') wait(Number(second), Number(third));
else load(Number(first), Number(second), Number(third));
