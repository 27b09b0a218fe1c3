use placet_ledger::dispatch::Dispatch;
use serde_json::Value;

fn alter(dispatch: &mut Dispatch) {
    dispatch.args.insert("path".to_owned(), Value::Null);
}

fn main() {}
