//! The outcomes of calls.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use placet_adapter::{
    adapter::{Conditions, Credential, Observer, Progress},
    outcome::{AdapterError, Outcome},
};
use placet_types::{
    envelope::result::{Citation, Mutation},
    ids::ToolCallId,
};

use crate::tests::support::{
    TOKEN, TRACEPARENT, call, connect, contract, dispatch, done, in_seconds, make_write, python,
    send, within,
};

#[tokio::test]
async fn a_read_passes_its_arguments_and_its_trace_and_no_key() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let args = json!({"a": 1, "b": {"c": [true, null]}});
    let answer = done(call(adapter.as_ref(), &contract, "echo", args.clone()).await);
    let seen = &answer.output["structured"];
    assert_eq!(seen["args"], args);
    assert_eq!(seen["meta"]["traceparent"], json!(TRACEPARENT));
    assert_eq!(seen["meta"]["tracestate"], json!("a=b"));
    assert!(seen["meta"].get("dev.placet/idempotency-key").is_none());
    assert_eq!(answer.output["content"], json!([{"type": "text", "text": "done"}]));
    assert!(answer.mutations.is_empty());
    adapter.close().await;
}

#[tokio::test]
async fn a_write_passes_its_token_and_names_what_it_changed() {
    let contract =
        contract(python("good"), |file| make_write(file, "echo", json!({"class": "opaque"})));
    let adapter = connect(&contract).await.unwrap();
    let answer = done(
        call(adapter.as_ref(), &contract, "echo", json!({"path": "a.txt", "name": "n"})).await,
    );
    let meta = &answer.output["structured"]["meta"];
    assert_eq!(meta["dev.placet/idempotency-key"], json!(TOKEN));
    assert_eq!(meta["dev.placet/attempt"], json!(1));
    assert_eq!(answer.output["structured"]["args"], json!({"path": "a.txt", "name": "n"}));
    assert_eq!(
        answer.mutations,
        [Mutation { action: "write".to_owned(), target: "peer/echo path=a.txt".to_owned() }]
    );
    adapter.close().await;
}

#[tokio::test]
async fn a_sensitive_argument_is_not_named_as_what_was_changed() {
    let contract =
        contract(python("good"), |file| make_write(file, "echo", json!({"class": "opaque"})));
    let adapter = connect(&contract).await.unwrap();
    for args in [
        json!({"name": "hush"}),
        json!({"path": "a\u{202e}b"}),
        json!({"path": "x".repeat(300)}),
        json!({"path": 1}),
    ] {
        let answer = done(call(adapter.as_ref(), &contract, "echo", args).await);
        assert_eq!(answer.mutations[0].target, "peer/echo");
    }
    adapter.close().await;
}

#[tokio::test]
async fn a_keyed_tool_gets_the_token_in_its_argument_and_nothing_else_changes() {
    let contract = contract(python("good"), |file| {
        make_write(file, "echo", json!({"class": "keyed", "window_ms": 60_000, "argument": "key"}));
    });
    let adapter = connect(&contract).await.unwrap();
    let answer =
        done(call(adapter.as_ref(), &contract, "echo", json!({"path": "p", "x": {"y": 1}})).await);
    assert_eq!(
        answer.output["structured"]["args"],
        json!({"path": "p", "x": {"y": 1}, "key": TOKEN})
    );
    assert_eq!(answer.output["structured"]["meta"]["dev.placet/idempotency-key"], json!(TOKEN));
    adapter.close().await;
}

#[tokio::test]
async fn no_credential_goes_to_a_child_process() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let credential = Credential {
        header: "authorization".to_owned(),
        value: "Bearer c4nary".into(),
        origin: None,
        ends: None,
    };
    let conditions = Conditions { credential: Some(credential), ..within(10_000) };
    let answer = done(adapter.invoke(dispatch(&contract, "echo", json!({})), conditions).await);
    assert!(!answer.output.to_string().contains("c4nary"));
    adapter.close().await;
}

#[tokio::test]
async fn a_late_answer_is_unknown_and_the_server_is_told() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    let outcome =
        adapter.invoke(dispatch(&contract, "slow", json!({"ms": 3_000})), within(100)).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let deadline = in_seconds(5);
    loop {
        let answer = done(call(adapter.as_ref(), &contract, "cancelled", json!({})).await);
        if answer.output["structured"]["cancelled"] != json!([]) {
            break;
        }
        assert!(Instant::now() < deadline, "the server was not told");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(adapter.is_alive());
    adapter.close().await;
}

#[tokio::test]
async fn without_time_nothing_is_sent() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let outcome = adapter.invoke(dispatch(&contract, "die", json!({})), within(0)).await;
    assert!(matches!(outcome, Outcome::NotExecuted(AdapterError::Unavailable(_))));
    assert!(adapter.is_alive());
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_dies_within_a_call_leaves_it_unknown_and_refuses_the_next() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let (other, outcome) = tokio::join!(
        call(adapter.as_ref(), &contract, "slow", json!({"ms": 5_000})),
        call(adapter.as_ref(), &contract, "die", json!({})),
    );
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(other, Outcome::Unknown(_)), "{other:?}");
    let deadline = in_seconds(5);
    while adapter.is_alive() {
        assert!(Instant::now() < deadline, "the end was not noticed");
        sleep(Duration::from_millis(5)).await;
    }
    let next = call(adapter.as_ref(), &contract, "echo", json!({})).await;
    assert!(matches!(next, Outcome::NotExecuted(AdapterError::Unavailable(_))), "{next:?}");
}

#[tokio::test]
async fn an_answer_that_is_none_leaves_the_call_unknown() {
    let contract = contract(python("good"), |_| {});
    for tool in ["other_kind", "input_required", "garbage"] {
        let adapter = connect(&contract).await.unwrap();
        let begun = Instant::now();
        let outcome = call(adapter.as_ref(), &contract, tool, json!({})).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{tool}: {outcome:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{tool} was found out only by its deadline"
        );
        // The connection is still good.
        done(call(adapter.as_ref(), &contract, "echo", json!({})).await);
        adapter.close().await;
    }
}

#[tokio::test]
async fn only_errors_that_the_contract_declares_say_that_nothing_happened() {
    for declared in [None, Some(-32_601), Some(1)] {
        let contract = contract(python("good"), |file| {
            if let Some(code) = declared {
                file["capabilities"]["error"]["not_executed"] = json!({"jsonrpc": [code]});
            }
        });
        let adapter = connect(&contract).await.unwrap();
        for code in [-32_601, -32_602, -32_603, -32_600, -32_000, 1] {
            let outcome = call(adapter.as_ref(), &contract, "error", json!({"code": code})).await;
            let counts = declared == Some(code);
            let is_none = matches!(outcome.not_executed(), Some(AdapterError::Refused(_)));
            assert_eq!(is_none, counts, "{code}: {outcome:?}");
            assert_eq!(matches!(outcome, Outcome::Unknown(_)), !counts, "{code}: {outcome:?}");
        }
        adapter.close().await;
    }
}

#[tokio::test]
async fn an_error_of_a_read_is_a_failure() {
    let contract = contract(python("good"), |file| {
        let read = file["capabilities"]["echo"].clone();
        file["capabilities"]["error"] = read;
    });
    let adapter = connect(&contract).await.unwrap();
    let outcome = call(adapter.as_ref(), &contract, "error", json!({"code": -32_603})).await;
    let Outcome::Failed(answer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(answer.output["error"]["code"], json!(-32_603));
    assert_eq!(answer.output["content"][0]["text"], json!("bad\\u{a}thing"));
    adapter.close().await;
}

#[tokio::test]
async fn a_reported_failure_is_a_failure_with_its_answer() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let outcome = call(adapter.as_ref(), &contract, "fail", json!({})).await;
    let Outcome::Failed(answer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(answer.output["content"][0]["text"], json!("no such row"));
    assert!(answer.mutations.is_empty());
    adapter.close().await;
}

#[tokio::test]
async fn sources_become_citations() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "sources", json!({})).await);
    assert_eq!(
        answer.citations,
        [
            Citation { uri: "file:///a.txt".to_owned(), title: Some("A".to_owned()) },
            Citation { uri: "file:///b.txt".to_owned(), title: None },
        ]
    );
    adapter.close().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_kept_is_withheld_and_the_call_still_done() {
    let contract =
        contract(python("good"), |file| make_write(file, "big", json!({"class": "opaque"})));
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "big", json!({"bytes": 5_000})).await);
    assert_eq!(answer.output["withheld"], json!(true));
    assert!(answer.output.to_string().len() < 1_000);
    assert_eq!(answer.mutations.len(), 1);
    let answer = done(call(adapter.as_ref(), &contract, "big", json!({"bytes": 3_000})).await);
    assert!(answer.output.get("withheld").is_none());
    // A number that is not exact: the text says the same.
    let answer = done(call(adapter.as_ref(), &contract, "number", json!({})).await);
    assert_eq!(answer.output["content"][0]["text"], json!("n"));
    assert!(answer.output.get("structured").is_none() && answer.output["notes"][0].is_string());
    let answer = done(call(adapter.as_ref(), &contract, "both", json!({"bytes": 5_000})).await);
    assert_eq!(answer.output["structured"], json!({"n": 1}));
    assert!(answer.output.get("content").is_none() && answer.output["notes"][0].is_string());
    adapter.close().await;
}

#[tokio::test]
async fn of_two_answers_the_first_counts_and_the_second_reaches_nobody() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    for _ in 0..5 {
        let answer = done(call(adapter.as_ref(), &contract, "twice", json!({})).await);
        assert_eq!(answer.output["content"][0]["text"], json!("first"));
        let answer = done(call(adapter.as_ref(), &contract, "slow", json!({"ms": 1})).await);
        assert_eq!(answer.output["content"][0]["text"], json!("slept 1"));
    }
    adapter.close().await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_reaches_no_later_call() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let outcome = adapter.invoke(dispatch(&contract, "slow", json!({"ms": 300})), within(50)).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let answer = done(call(adapter.as_ref(), &contract, "slow", json!({"ms": 600})).await);
    assert_eq!(answer.output["content"][0]["text"], json!("slept 600"));
    adapter.close().await;
}

#[tokio::test]
async fn structured_output_that_is_not_as_declared_is_noted() {
    let contract = contract(python("good"), |file| {
        let wants_x = json!({"type": "object", "required": ["x"]});
        file["capabilities"]["echo"]["output_schema"] = wants_x.clone();
        file["capabilities"]["slow"]["output_schema"] = wants_x;
        file["capabilities"]["cancelled"]["output_schema"] =
            json!({"type": "object", "required": ["cancelled"]});
    });
    let adapter = connect(&contract).await.unwrap();
    for (tool, args, notes) in
        [("echo", json!({}), 1), ("slow", json!({"ms": 0}), 1), ("cancelled", json!({}), 0)]
    {
        let answer = done(call(adapter.as_ref(), &contract, tool, args).await);
        assert_eq!(answer.output["notes"].as_array().map_or(0, Vec::len), notes, "{tool}");
    }
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_asks_for_something_is_told_that_there_is_no_such_method() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let answer = done(call(adapter.as_ref(), &contract, "ask", json!({})).await);
    assert_eq!(
        answer.output["structured"]["said"],
        json!([
            ["sampling/createMessage", -32_601, false],
            ["elicitation/create", -32_601, false],
            ["roots/list", -32_601, false],
            ["ping", null, true],
        ])
    );
    adapter.close().await;
}

#[tokio::test]
async fn many_calls_share_one_connection() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    let calls = (0..32).map(|_| call(adapter.as_ref(), &contract, "slow", json!({"ms": 500})));
    for outcome in join_all(calls).await {
        assert_eq!(done(outcome).output["content"][0]["text"], json!("slept 500"));
    }
    assert!(begun.elapsed() < Duration::from_secs(8));
    adapter.close().await;
}

#[tokio::test]
async fn a_dispatch_under_another_contract_is_not_sent() {
    let now = contract(python("good"), |_| {});
    let then = contract(python("good"), |file| file["description"] = json!("before"));
    let adapter = connect(&now).await.unwrap();
    let outcome = adapter.invoke(dispatch(&then, "die", json!({})), within(10_000)).await;
    assert!(
        matches!(outcome, Outcome::NotExecuted(AdapterError::SchemaMismatch(_))),
        "{outcome:?}"
    );
    assert!(adapter.is_alive());
    adapter.close().await;
}

#[tokio::test]
async fn a_message_that_was_written_in_part_leaves_the_call_unknown() {
    let contract = contract(python("deaf:500"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    // More than a pipe holds: it is still being written when the server ends.
    let outcome =
        call(adapter.as_ref(), &contract, "echo", json!({"long": "x".repeat(1_000_000)})).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "it was found out only by its deadline");
    adapter.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_up_neither_a_call_nor_the_close() {
    let contract = contract(python("deaf:60000"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let begun = Instant::now();
    let args = json!({"long": "x".repeat(1_000_000)});
    let outcome = adapter.invoke(dispatch(&contract, "echo", args), within(300)).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    adapter.close().await;
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn an_answer_that_is_late_is_heard_while_somebody_listens_and_cancelled_when_nobody_does() {
    let contract = contract(python("good"), |_| {});
    let adapter = connect(&contract).await.unwrap();
    let slow = |ms: u64| dispatch(&contract, "slow", json!({"ms": ms}));
    let listening = |listen_ms| Conditions { listen_ms, ..within(100) };
    let heard = adapter.invoke(slow(600), listening(10_000)).await;
    assert!(matches!(heard, Outcome::Done(_)), "{heard:?}");
    let answer = done(call(adapter.as_ref(), &contract, "cancelled", json!({})).await);
    assert_eq!(answer.output["structured"]["cancelled"], json!([]), "it was cancelled");

    let began = Instant::now();
    let unheard = adapter.invoke(slow(5_000), listening(300)).await;
    assert!(matches!(unheard, Outcome::Unknown(_)), "{unheard:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // Dropping a call that is still listened for cancels it too.
    let release =
        timeout(Duration::from_millis(300), adapter.invoke(slow(5_000), listening(60_000)));
    assert!(release.await.is_err());
    for _ in 0..100 {
        let answer = done(call(adapter.as_ref(), &contract, "cancelled", json!({})).await);
        if answer.output["structured"]["cancelled"].as_array().is_some_and(|ids| ids.len() == 2) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the server was not told");
}

#[derive(Debug, Default)]
struct Steps(Mutex<Vec<Progress>>);

impl Observer for Steps {
    fn progressed(&self, _call: &ToolCallId, progress: Progress) {
        self.0.lock().push(progress);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_server_counts_right_before_its_answer_is_heard() {
    let contract = contract(python("good"), |_file| {});
    let adapter = connect(&contract).await.unwrap();
    for _ in 0..200 {
        let steps = Arc::new(Steps::default());
        let observer: Arc<dyn Observer> = Arc::<Steps>::clone(&steps);
        let conditions = Conditions { observer: Some(observer), ..within(10_000) };
        done(send(&*adapter, dispatch(&contract, "count", json!({})), conditions).await);
        let step = |done| Progress { done, total: Some(3.0) };
        assert_eq!(*steps.0.lock(), [step(1.0), step(2.0), step(3.0)]);
    }
    adapter.close().await;
}
