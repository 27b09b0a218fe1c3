//! A program that does what it is told, step by step: a line of JSON for each step, and a line for each answer.
//!
//! Owns the pipes. What the steps are is the program's.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{watcher, within};

/// A running program.
#[derive(Debug)]
pub(crate) struct Scripted {
    _process: Child,
    steps: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Scripted {
    /// Starts it, and waits for the line that it begins with.
    pub(crate) async fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        watcher::watch(process.id());
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let steps = process.stdin.take().unwrap();
        let mut program = Self { _process: process, steps, answers };
        program.answer().await;
        program
    }

    /// The next line.
    pub(crate) async fn answer(&mut self) -> Value {
        let line = within("an answer of the program", self.answers.next_line()).await;
        serde_json::from_str(&line.unwrap().expect("the program goes on")).unwrap()
    }

    /// Takes a step, and waits for its answer.
    pub(crate) async fn does(&mut self, step: &Value) -> Value {
        self.steps.write_all(format!("{step}\n").as_bytes()).await.unwrap();
        self.answer().await
    }
}
