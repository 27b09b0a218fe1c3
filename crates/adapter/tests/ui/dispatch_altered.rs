use placet_ledger::dispatch::Dispatch;

fn alter(dispatch: &mut Dispatch) {
    dispatch.args.clear();
}
