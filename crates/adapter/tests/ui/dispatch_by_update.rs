use placet_ledger::dispatch::Dispatch;
use serde_json::{Map, Value};

fn swap(dispatch: Dispatch, args: Map<String, Value>) -> Dispatch {
    Dispatch { args, ..dispatch }
}

fn main() {}
