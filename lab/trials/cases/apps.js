// apps.js express PORT US: a server that uses so much CPU time for each request. apps.js fastify PORT
// MS: it answers so much later. apps.js undici PORT CONNECTIONS SECONDS: a load generator.
const [mode, port, second, third] = process.argv.slice(2);
const host = process.env.CASE_HOST || '127.0.0.1';

function express(us) {
  const app = require('express')();
  app.get('/', (request, response) => {
    const end = process.hrtime.bigint() + BigInt(us) * 1000n;
    while (process.hrtime.bigint() < end);
    response.send('hello\n');
  });
  app.listen({ host, port, backlog: 1024 });
}

function fastify(ms) {
  const app = require('fastify')();
  app.get('/', () => new Promise((done) => setTimeout(done, ms, 'hello\n')));
  app.listen({ host, port: Number(port), backlog: 1024 });
}

async function undici(connections, seconds) {
  const { Pool } = require('undici');
  const pool = new Pool(`http://${host}:${port}`, { connections });
  const end = Date.now() + 1000 * seconds;
  let done = 0;
  await Promise.all(Array.from({ length: connections }, async () => {
    for (; Date.now() < end; done += 1) {
      const { body } = await pool.request({ path: '/', method: 'GET' });
      await body.text();
    }
  }));
  await pool.close();
  console.log(done, 'requests');
}

if (mode === 'express') express(Number(second));
else if (mode === 'fastify') fastify(Number(second));
else undici(Number(second), Number(third));
