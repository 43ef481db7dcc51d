//! Feeds random bytes to the properties for some time, and says which bytes broke one. It keeps no corpus: `cargo fuzz` does.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer command talks to the terminal")]

use std::{
    panic::catch_unwind,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use zeroclaw_fuzz::{Body, TARGETS};

/// Bytes of one input, at most: every choice of the deepest command fits.
const MAX_INPUT: u64 = 512;

const USAGE: &str = "usage: zeroclaw-fuzz [--seconds N] [--seed N] [--replay FILE] [TARGET]…";

struct Options {
    seconds: u64,
    seed: u64,
    replay: Option<String>,
    targets: Vec<&'static (&'static str, Body)>,
}

fn options() -> Result<Options, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos());
    let mut options = Options {
        seconds: 10,
        seed: u64::try_from(now & u128::from(u64::MAX)).unwrap_or(1),
        replay: None,
        targets: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` wants a value\n{USAGE}"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number\n{USAGE}"));
        match &*word {
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--replay" => options.replay = Some(value()?),
            name => {
                let found: Vec<_> = TARGETS.iter().filter(|(known, _)| known.starts_with(name)).collect();
                if found.is_empty() {
                    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                    return Err(format!("there is no target `{name}`, only {}", names.join(", ")));
                }
                options.targets.extend(found);
            }
        }
    }
    if options.targets.is_empty() {
        options.targets.extend(TARGETS);
    }
    Ok(options)
}

/// One input of random length and content.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, input: &mut Vec<u8>) {
        input.clear();
        // Short ones are more common: they make what is broken easy to see.
        let limit = 1 + self.next() % MAX_INPUT;
        let length = self.next() % limit;
        while (input.len() as u64) < length {
            input.extend_from_slice(&self.next().to_be_bytes());
        }
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &options.replay {
        let Ok(input) = std::fs::read(file) else {
            eprintln!("cannot read {file}");
            return ExitCode::from(2);
        };
        for (name, body) in options.targets {
            println!("{name}: {} bytes", input.len());
            body(&input);
        }
        return ExitCode::SUCCESS;
    }
    let mut broken = false;
    for (name, body) in options.targets {
        broken |= !run(name, *body, options.seconds, options.seed);
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run(name: &str, body: Body, seconds: u64, seed: u64) -> bool {
    let mut random = Random(seed | 1);
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds));
    let (mut rounds, mut input) = (0_u64, Vec::new());
    while began.elapsed() < limit {
        random.fill(&mut input);
        rounds += 1;
        if catch_unwind(|| body(&input)).is_err() {
            let file = std::env::temp_dir().join(format!("zeroclaw-fuzz-{name}-{seed}.input"));
            let kept =
                std::fs::write(&file, &input).map_or_else(|error| error.to_string(), |()| file.display().to_string());
            println!("{name:<18} BROKEN after {rounds} inputs, seed {seed}: {kept}");
            return false;
        }
    }
    println!("{name:<18} {rounds} inputs in {:.1} s, seed {seed}", began.elapsed().as_secs_f64());
    true
}
