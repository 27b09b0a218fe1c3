use placet_ledger::dispatch::Dispatch;

fn double(dispatch: Dispatch) -> (Dispatch, Dispatch) {
    (dispatch.clone(), dispatch)
}
