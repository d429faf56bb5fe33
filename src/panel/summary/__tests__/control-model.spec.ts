/** @jest-environment ./jest.environment.node.js */
import { ProtocolError } from '../../../protocol/protocol-error';
import { ControlModel } from '../control-model';
import { JOB } from '../../shell/__tests__/memory-job';
import { HELLO, ControlledRun } from '../../shell/__tests__/controlled-run';

const ADA = { name: 'kernel', version: '1', user: 'Ada' };

function job(): { run: ControlledRun; control: ControlModel } {
  const run = new ControlledRun(structuredClone(JOB));
  return { run, control: new ControlModel(run) };
}

describe('ControlModel', () => {
  it('allows what the script allows, while the run takes changes', () => {
    const { run, control } = job();
    expect(control.allows('pause')).toBe(true);
    run.status = { type: 'status', state: 'finished', step: 3 };
    expect(control.allows('pause')).toBe(false);
    expect(new ControlModel(new ControlledRun(structuredClone(HELLO))).allows('pause')).toBe(false);
  });

  it('pauses, takes a step and resumes, and says that it was asked for here', async () => {
    const { run, control } = job();
    await control.setMode({ paused: true });
    expect(control.paused).toBe(true);
    expect(control.author('mode')).toMatchObject({ here: true, step: 1243 });
    await control.setMode({ steps: 3 });
    expect(control.paused).toBe(true);
    // Taking steps does not make somebody else of who paused.
    expect(control.author('mode')).toMatchObject({ here: true });
    run.status = { type: 'status', state: 'paused', step: 1246 };
    await control.setMode({ paused: false });
    // The status is up to two seconds old.
    expect(control.paused).toBe(false);
    expect(run.patches).toEqual([
      { flags: {}, mode: { paused: true } },
      { flags: {}, mode: { steps: 3 } },
      { flags: {}, mode: { paused: false } }
    ]);
  });

  it('knows who else paused, and forgets a pause when the training is over', () => {
    const { run, control } = job();
    const message = run.configured({ flags: {}, mode: { paused: true } }, 'kernel-1');
    run.changed.emit({ kind: 'configured', message: { ...message, by: ADA, time: 1_790_000_100 } });
    expect(control.author('mode')).toEqual({ who: 'Ada', here: false, time: 1_790_000_100, step: 1243 });
    expect(control.author('perturb')).toBeNull();
    run.status = { type: 'status', state: 'lost', step: 1243 };
    expect(control.paused).toBe(false);
  });

  it('shows a pause that was there before it looked', () => {
    const run = new ControlledRun(structuredClone(JOB));
    run.status = { type: 'status', state: 'paused', step: 7 };
    expect(new ControlModel(run).paused).toBe(true);
  });

  it('learns from the audit who paused before it looked', () => {
    const { run, control } = job();
    let told = 0;
    control.changed.connect(() => told++);
    run.audit.set('pause', { step: 9, time: 1_790_000_100, who: 'Ada', action: 'pause' });
    run.changed.emit({ kind: 'rows', stream: 'audit', firstStep: 9, lastStep: 9 });
    expect(told).toBe(1);
    expect(control.author('mode')).toEqual({ who: 'Ada', here: false, time: 1_790_000_100, step: 9 });
  });

  it('lets a pause be taken back before its step came', async () => {
    const { run, control } = job();
    let apply: () => void = () => undefined;
    const answer = run.answer;
    run.answer = (patch, accepted) => {
      accepted?.({ ...run.configured(patch, 'panel-1'), applied: false });
      return new Promise(resolve => (apply = () => resolve(run.configured(patch, 'panel-1'))));
    };
    const pausing = control.setMode({ paused: true });
    expect(control.asked('mode')).toEqual({ kind: 'accepted', step: 1243 });
    run.answer = answer;
    await control.setMode({ paused: false });
    expect(control.asked('mode').kind).toBe('applied');
    apply();
    await pausing;
    expect(run.patches).toHaveLength(2);
  });

  it('asks about one subject while another is waited for', async () => {
    const { run, control } = job();
    run.answer = () => new Promise(() => undefined);
    void control.ask('perturb', { perturb: null });
    void control.setBudget(1);
    void control.setBudget(2);
    expect(run.patches).toEqual([
      { flags: {}, perturb: null },
      { flags: {}, budget: 1 }
    ]);
  });

  it('keeps a refusal in the hub’s words', async () => {
    const { run, control } = job();
    run.answer = () => Promise.reject(new ProtocolError('refused', 'Not allowed.', { field: 'patch.mode' }));
    await control.setMode({ paused: true });
    expect(control.asked('mode')).toEqual({
      kind: 'refused',
      message: 'Not allowed.',
      field: 'mode',
      column: null
    });
    expect(control.paused).toBe(false);
  });

  it('lets go of the source when disposed, twice too', () => {
    const { run, control } = job();
    let told = 0;
    control.changed.connect(() => told++);
    control.dispose();
    control.dispose();
    run.changed.emit({ kind: 'status' });
    expect(told).toBe(0);
  });
});
