//! Fetches a URL many times with reqwest, in tasks: `URL TIMES TASKS`.

use foreign_programs::Received;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let url = arguments[1].clone();
    let times = arguments[2].parse::<usize>().unwrap();
    let client = reqwest::Client::new();
    let tasks = (0..arguments[3].parse::<usize>().unwrap()).map(|task| {
        let client = client.clone();
        let url = url.clone();
        tokio::spawn(async move {
            let mut received = Received::default();
            for _ in 0..times {
                let mut response = client.get(&url).send().await.unwrap();
                while let Some(part) = response.chunk().await.unwrap() {
                    received.add(&part);
                }
            }
            received.line(task)
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        println!("{}", task.await.unwrap());
    }
}
