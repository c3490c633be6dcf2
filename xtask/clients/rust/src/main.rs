//! redis-rs as it is: raw PORT MEANS. See xtask/src/clients/raw.rs.

use redis::{AsyncConnectionConfig, Client, Cmd, Connection, RedisResult, Value};
use std::io::Read;
use std::time::{Duration, Instant};

fn command(words: &str) -> Cmd {
    let mut command = Cmd::new();
    words.split(' ').for_each(|word| {
        command.arg(word);
    });
    command
}

fn said(reply: RedisResult<Value>) -> String {
    match reply {
        Ok(Value::Nil) => "nil".into(),
        Ok(Value::Int(number)) => number.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

fn several(connection: &mut Connection, act: &str) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    if act == "multi" {
        pipe.atomic();
    }
    for n in 0..10 {
        pipe.add_command(command(&format!("LOCK {act}{n} TTL 60000")));
    }
    let tokens: Vec<i64> = pipe.query(connection)?;
    println!("{act} {}", tokens.iter().filter(|&&token| token > 0).count());
    for (n, token) in tokens.iter().enumerate() {
        command(&format!("UNLOCK {act}{n} {token}")).exec(connection)?;
    }
    Ok(())
}

fn plain(client: &Client) -> RedisResult<()> {
    let mut connection = client.get_connection()?;
    let token: i64 = command("LOCK job TTL 60000").query(&mut connection)?;
    println!("lock {}", if token > 0 { "granted" } else { "no" });
    let mut ask = |words: &str| said(command(words).query(&mut connection));
    println!("try {}", ask("TRYLOCK job"));
    println!("wait {}", ask("LOCK job TTL 60000 WAIT 100"));
    println!("wrong {}", ask(&format!("UNLOCK job {}", token + 1)));
    println!("unlock {}", ask(&format!("UNLOCK job {token}")));
    several(&mut connection, "pipeline")?;
    several(&mut connection, "multi")
}

const HASTY: &str = "LOCK busy TTL 60000 WAIT 5000";
const LIMIT: Duration = Duration::from_millis(300);

/// Renews a lease for as long as it runs, over one connection, or another one where
/// redis-rs says that it has ended; see groups.py.
fn follow(port: &str) -> RedisResult<()> {
    let client = Client::open(format!("redis://locks:{port}"))?;
    let mut connection = client.get_connection()?;
    let token: i64 = command("LOCK job TTL 20000").query(&mut connection)?;
    println!("token {token}");
    let renew = command(&format!("RENEW job {token} TTL 20000"));
    let mut last = String::new();
    loop {
        let sent = Instant::now();
        let reply = match redis::ConnectionLike::is_open(&connection) {
            true => renew.query(&mut connection),
            false => client.get_connection().and_then(|another| {
                connection = another;
                renew.query(&mut connection)
            }),
        };
        let (text, ms) = (said(reply), sent.elapsed().as_millis());
        if text != last || ms > 300 {
            println!("{ms} {text}");
        }
        last = text;
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let mut arguments = std::env::args().skip(1);
    let (port, means) = (arguments.next().unwrap(), arguments.next().unwrap());
    if means == "group" {
        return follow(&port);
    }
    println!("version redis-rs 1.8.1");
    let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
    plain(&client)?;
    let mut held = client.get_connection()?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
    let mut shared = client.get_multiplexed_async_connection_with_config(&config).await?;
    let sent = Instant::now();
    let text = if means == "set_read_timeout" {
        held.set_read_timeout(Some(LIMIT))?;
        said(command(HASTY).query(&mut held))
    } else {
        said(command(HASTY).query_async(&mut shared).await)
    };
    println!("timeout {} {text}", sent.elapsed().as_millis());
    // The connection stays in the program's hands, as in a service that goes on.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    Ok(())
}
