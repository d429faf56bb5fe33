import type { Status } from '../../../protocol/messages.generated';
import { FRAME_BYTES } from '../../../views/shared/forecast';
import { JOB, rankStates } from '../../shell/__tests__/memory-job';
import { shown, until } from '../../shell/__tests__/shown-panel';

type Shown = Awaited<ReturnType<typeof shown>>;

/** Press a button of the panel by its text. */
function press({ panel }: Shown, text: string): HTMLButtonElement {
  const button = buttonOf(panel.node, text);
  button!.focus();
  button!.click();
  return button!;
}

function buttonOf(node: HTMLElement, text: string): HTMLButtonElement | undefined {
  return [...node.querySelectorAll('button')].find(each => each.textContent?.includes(text));
}

async function job(): Promise<Shown> {
  const all = await shown(JOB);
  await until(() => buttonOf(all.panel.node, 'Pause') !== undefined);
  return all;
}

function report({ source }: Shown, status: Partial<Status>): void {
  source.status = { type: 'status', state: 'training', step: 1240, ...status };
  source.changed.emit({ kind: 'status' });
}

describe('the training’s controls in the panel', () => {
  it('pause after a question whose safe answer has the focus, and resume at once', async () => {
    const all = await job();
    const { panel, find, source } = all;
    const pause = press(all, 'Pause');
    await until(() => find('.jp-MegalensConfirm') !== null);
    expect(document.activeElement?.textContent).toBe('Keep training');
    // A double click takes the question back.
    pause.click();
    await until(() => find('.jp-MegalensConfirm') === null);
    expect(source.patches).toEqual([]);
    pause.click();
    await until(() => find('.jp-MegalensConfirm') !== null);
    press(all, 'Pause the training');
    await until(() => pause.textContent === 'Resume');
    expect(source.patches).toEqual([{ flags: {}, mode: { paused: true } }]);
    // The key that would undo it is under the finger.
    expect(document.activeElement).toBe(pause);
    expect(find('.jp-mod-summary .jp-MegalensNotice')?.textContent).toMatch(
      /Training was paused by you and waits after step 1\u202f240\./
    );
    expect(find('.jp-MegalensRun-word')?.textContent).toBe('paused');
    press(all, 'Step');
    await until(() => source.patches.length === 2);
    expect(source.patches[1]).toEqual({ flags: {}, mode: { steps: 1 } });
    pause.click();
    await until(() => pause.textContent === 'Pause');
    expect(source.patches[2]).toEqual({ flags: {}, mode: { paused: false } });
    panel.dispose();
  });

  it('take Escape for no', async () => {
    const all = await job();
    const pause = press(all, 'Pause');
    await until(() => all.find('.jp-MegalensConfirm') !== null);
    document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
    await until(() => all.find('.jp-MegalensConfirm') === null);
    expect(document.activeElement).toBe(pause);
    all.panel.dispose();
  });

  it('switch training only while watched on after a question, and off at once', async () => {
    const all = await job();
    press(all, 'Train only while somebody watches');
    await until(() => all.find('.jp-MegalensConfirm') !== null);
    press(all, 'Train only while watched');
    const box = () => all.find('[role=checkbox]');
    await until(() => box()?.getAttribute('aria-checked') === 'true');
    press(all, 'Train only while somebody watches');
    await until(() => box()?.getAttribute('aria-checked') === 'false');
    expect(all.source.patches.map(({ mode }) => mode)).toEqual([
      { while_watched: true },
      { while_watched: false }
    ]);
    all.panel.dispose();
  });

  it('name what is off where the script allows some of it', async () => {
    const all = await shown({ ...JOB, controls: ['pause'] });
    await until(() => all.find('.jp-MegalensControls-hint') !== null);
    expect(all.find('.jp-MegalensControls-hint summary')?.textContent).toBe(
      'Off in this run: training only while watched, perturbing'
    );
    expect(all.find('.jp-mod-perturb')).toBeNull();
    all.panel.dispose();
  });

  it('are one quiet line where the script allows nothing', async () => {
    const all = await shown();
    await until(() => all.find('.jp-MegalensControls-hint') !== null);
    expect(all.find('.jp-MegalensControls-hint summary')?.textContent).toBe(
      'View-only: the script allows no control'
    );
    expect(all.find('.jp-MegalensControls-hint code')?.textContent).toBe(
      'megalens.trace(..., allow=["pause", "watched", "perturb"])'
    );
    expect(buttonOf(all.panel.node, 'Pause')).toBeUndefined();
    all.panel.dispose();
  });
});

describe('a perturbation in the panel', () => {
  it('is armed after a question, stands over the whole panel, and goes when its last step is past', async () => {
    const all = await job();
    const { find, panel, source } = all;
    find('#jp-Megalens-site-calculation')!.click();
    await until(() => find('#jp-Megalens-site-calculation-kind') !== null);
    press(all, 'Arm…');
    await until(() => find('.jp-MegalensConfirm') !== null);
    expect(find('.jp-MegalensConfirm')?.textContent).toContain(
      'Perturb this training for 100 steps? MLP output: Additive Gaussian noise, coefficient 0.01.'
    );
    buttonOf(find('.jp-MegalensConfirm')!, 'Arm')!.click();
    await until(() => find('.jp-MegalensArmed') !== null);
    const banner = () => find('.jp-MegalensArmed')?.textContent ?? '';
    expect(banner()).toContain('seed 0 · armed by you');
    expect(banner()).toContain('ends at step 1\u202f342');
    expect(find('.jp-MegalensRun-word')?.textContent).toBe('perturbed');
    expect(panel.node.querySelector('.jp-mod-perturbed')).not.toBeNull();
    // One that ended before had touched 100.
    report(all, { step: 1250, perturbed_steps: 108, armed_steps: 8 });
    await until(() => banner().includes('8 touched so far'));
    report(all, { step: 1343, perturbed_steps: 200 });
    await until(() => find('.jp-MegalensArmed') === null);
    expect(find('.jp-mod-perturb')?.textContent).toContain('200 steps of this run were perturbed');
    expect(source.patches).toHaveLength(1);
    panel.dispose();
  });

  it('of somebody else is told with who, and can be disarmed', async () => {
    const all = await job();
    const { find, source } = all;
    const message = source.configured(
      { flags: {}, perturb: { sites: { calculation: { kind: { name: 'noise1' } } }, seed: 5 } },
      'kernel-1'
    );
    source.changed.emit({
      kind: 'configured',
      message: { ...message, by: { name: 'kernel', version: '1', user: 'Ada' }, time: 1_790_000_100 }
    });
    await until(() => find('.jp-MegalensArmed') !== null);
    expect(find('.jp-MegalensArmed')?.textContent).toContain('armed by Ada at');
    press(all, 'Disarm');
    await until(() => find('.jp-MegalensArmed') === null);
    expect(source.patches).toEqual([{ flags: {}, perturb: null }]);
    all.panel.dispose();
  });
});

describe('a job of many processes in the panel', () => {
  it('names a silent rank, and opens to all of them', async () => {
    const all = await job();
    const { find } = all;
    expect(find('.jp-MegalensRanks-line')?.textContent).toBe('8 ranks · TP 2 PP 2 DP 2');
    report(all, { ranks: rankStates({ 3: { state: 'silent', seconds: 2.5, step: 1239 } }) });
    await until(() => find('.jp-MegalensRanks-trouble') !== null);
    expect(find('.jp-mod-summary .jp-MegalensNotice p')?.textContent).toBe(
      'Rank 3 (tp 1, pp 0) on node-1 has been silent for 2.5 s, since step 1\u202f239.'
    );
    // The count goes on for the eye; a screen reader has said it.
    expect(find('.jp-mod-summary .jp-MegalensNotice')?.getAttribute('aria-live')).toBeNull();
    report(all, { ranks: rankStates({ 3: { state: 'silent', seconds: 4.5, step: 1239 } }) });
    await until(() => find('.jp-mod-summary .jp-MegalensNotice p')?.textContent?.includes('4.5 s') === true);
    expect(find('.jp-mod-summary .jp-MegalensNotice')?.getAttribute('aria-live')).toBe('off');
    press(all, 'Show every rank');
    await until(() => find('.jp-MegalensRanks-cell.jp-mod-silent') !== null);
    expect(all.panel.node.querySelectorAll('.jp-MegalensRanks-cell')).toHaveLength(8);
    report(all, { ranks: rankStates() });
    await until(() => find('.jp-MegalensRanks-trouble') === null);
    expect(find('.jp-mod-summary .jp-MegalensNotice')).toBeNull();
    all.panel.dispose();
  });

  it('of one process is told as the training process', async () => {
    const all = await shown({ ...JOB, layout: { world_size: 1, tp: 1, pp: 1, dp: 1 } });
    report(all, { ranks: [{ rank: 0, state: 'silent', step: 12, seconds: 2.5 }] });
    await until(() => all.find('.jp-mod-summary .jp-MegalensNotice') !== null);
    expect(all.find('.jp-mod-summary .jp-MegalensNotice p')?.textContent).toBe(
      'The training process has been silent for 2.5 s, since step 12.'
    );
    expect(all.find('.jp-MegalensRanks')).toBeNull();
    all.panel.dispose();
  });

  it('of thousands of processes is counted by stage', async () => {
    const layout = { world_size: 4096, tp: 8, pp: 2, dp: 256 };
    const ranks = Array.from({ length: 4096 }, (_, rank) => ({
      rank,
      tp: rank % 8,
      dp: (rank >> 3) % 256,
      pp: rank >> 11
    }));
    const all = await shown({ ...JOB, layout: { ...layout, ranks } });
    report(all, {
      ranks: ranks.map(({ rank }) => ({ rank, state: rank < 20 ? 'silent' : 'training', step: 1 }))
    });
    await until(() => all.find('.jp-MegalensRanks-trouble') !== null);
    press(all, '4\u202f096 ranks');
    await until(() => all.find('.jp-MegalensRanks-stage') !== null);
    expect(all.find('.jp-MegalensRanks-stage')?.textContent).toBe('Stage 020 silent, 2\u202f028 training');
    expect(all.find('#jp-Megalens-ranks')?.textContent).toContain('and 10 more');
    all.panel.dispose();
  });
});

describe('what tracing costs in the panel', () => {
  it('shows the whole cost and its parts, and warns only of what makes steps longer', async () => {
    const all = await job();
    const term = () => all.find('.jp-MegalensCost-term') as HTMLElement;
    const cost = { percent: 3, low: 2.8, high: 3.2, producer: 0.2, recorder: 0.5 };
    report(all, { overhead: { ...cost, training: 0.3, hub: 2 } });
    await until(() => term().textContent === 'overhead 3.0 % ± 0.2');
    expect(term().classList).not.toContain('jp-mod-warn');
    expect(term().title).toContain('training thread 0.3 %, producer 0.2 %, hub 2.0 %, recorder 0.5 %');
    report(all, { overhead: { ...cost, training: 2.2, hub: 0.1 } });
    await until(() => term().classList.contains('jp-mod-warn'));
    all.panel.dispose();
  });

  it('opens to what was given up, is amber past its budget, and the budget is set and cleared there', async () => {
    const all = await job();
    const { find, source } = all;
    const term = () => find('.jp-MegalensCost-term');
    expect(term()?.textContent).toBe('overhead not measured yet');
    report(all, {
      budget: {
        limit: 0.5,
        state: 'over',
        percent: 0.8,
        low: 0.6,
        high: 1.0,
        steps: 400,
        gave_up: ['Every second step is traced instead of every step.']
      }
    });
    await until(() => term()?.textContent === 'overhead 0.8 % ± 0.2');
    expect(term()?.classList).toContain('jp-mod-warn');
    term()!.click();
    await until(() => find('.jp-MegalensCost') !== null);
    expect(find('.jp-MegalensCost')?.textContent).toContain('Every second step is traced');
    expect(find('.jp-MegalensCost')?.textContent).toContain('MLP1 output ≈ 177 kB/step');
    press(all, 'Set');
    await until(() => find('.jp-MegalensCost')?.textContent?.includes('Budget 1 %') === true);
    press(all, 'Clear');
    await until(() => find('.jp-MegalensCost')?.textContent?.includes('No budget') === true);
    expect(source.patches.map(({ budget }) => budget)).toEqual([1, null]);
    all.panel.dispose();
  });
});

describe('a run that no tracer of ours sends', () => {
  it('says what it is, and that its steps are inferred', async () => {
    const all = await shown({
      ...JOB,
      controls: [],
      origin: { kind: 'foreign', name: 'T1', steps: 'inferred' }
    });
    await until(() => all.find('.jp-MegalensChips') !== null);
    expect(all.find('.jp-MegalensChips')?.textContent).toBe(
      'foreign hub: MegatronApp trainingsteps inferred'
    );
    // Its script knows no megalens.trace.
    expect(all.find('.jp-MegalensControls-hint')).toBeNull();
    all.panel.dispose();
  });

  it('is a replay at its speed', async () => {
    const all = await shown({ ...JOB, origin: { kind: 'replay', name: 'old', steps: 'counted', speed: 4 } });
    await until(() => all.find('.jp-MegalensChips') !== null);
    expect(all.find('.jp-MegalensChips')?.textContent).toBe('replay × 4');
    // What was recorded costs nothing more.
    report(all, {});
    await until(() => all.find('.jp-MegalensFigures') !== null);
    expect(all.find('.jp-MegalensCost-term')).toBeNull();
    all.panel.dispose();
  });
});

describe('the trace form of a job', () => {
  it('offers passes, and replicas where there are some', async () => {
    const all = await job();
    const { find, model } = all;
    press(all, 'mean of 96 tiles');
    const field = () => find('#jp-Megalens-flag-MLP1_mat_mul-replicas') as HTMLSelectElement | null;
    await until(() => field() !== null);
    expect(field()?.textContent).toBe('the firstall 2');
    const before = model.open!.trace.estimate.bytes;
    model.open!.trace.change('MLP1_mat_mul', { passes: ['forward', 'backward'], replicas: 'all' });
    // A frame costs the same whatever is in it.
    expect(model.open!.trace.estimate.bytes - FRAME_BYTES).toBe(4 * (before - FRAME_BYTES));
    await until(() => find('.jp-MegalensFlag-summary')?.textContent?.includes('∇') === true);
    all.panel.dispose();
  });

  it('says that no layer has a tensor where the hub gives no reason', async () => {
    const hello = structuredClone(JOB);
    hello.flags[1]!.layers = [];
    const all = await shown(hello);
    await until(() => all.find('.jp-MegalensFlag-reason') !== null);
    expect(all.find('#jp-Megalens-flag-QKV_mat_mul-reason')?.textContent).toBe(
      'No layer of this model has it.'
    );
    all.panel.dispose();
  });

  it('shows beside an open flag what a pass has shown of it', async () => {
    const hello = structuredClone(JOB);
    hello.flags[0]!.evidence = '0–1: blocks.*.fc1 — it goes through a nonlinearity';
    const all = await shown(hello);
    await until(() => buttonOf(all.panel.node, 'mean of 96 tiles') !== undefined);
    press(all, 'mean of 96 tiles');
    await until(() => all.find('.jp-MegalensFlag-evidence') !== null);
    expect(all.find('.jp-MegalensFlag-evidence')?.textContent).toBe(hello.flags[0]!.evidence);
    all.panel.dispose();
  });
});
