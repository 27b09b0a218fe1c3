use placet_ledger::dispatch::Dispatch;

fn swap(dispatch: Dispatch) -> Dispatch {
    Dispatch { args: Default::default(), ..dispatch }
}
