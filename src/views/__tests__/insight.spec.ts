import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunEvent } from '../../store/run-events';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { RunLink } from '../../store/run-link';
import { fewEvents } from '../shared/event-strip';
import { untranslated } from '../shared/translate';
import { readView } from '../still';
import { showView } from './page';

const EVENTS: readonly IRunEvent[] = [
  { kind: 'settings', first: 10, last: 10, text: 'Tile(96) → Tile(48), by ada' },
  { kind: 'lost', first: 21, last: 24, text: '4 steps did not arrive' }
];

class Run extends MemoryRun {
  readonly link = new RunLink();
  happened: readonly IRunEvent[] = [];
  events = (): Promise<readonly IRunEvent[]> => Promise.resolve(this.happened);
}

/** Three steps of two layers; of layer 2 the third tile of the second position is by far the largest at step 30. */
function runOf(): Run {
  const run = new Run();
  for (const step of [10, 20, 30]) {
    for (const layer of [1, 2]) {
      const values = new Float32Array(6).fill(layer);
      values[5] = step === 30 && layer === 2 ? -90 : layer;
      run.add({ step, layer, shape: [1, 2, 3], values });
    }
  }
  run.units = { loss: 'nats/byte' };
  run.numbers = [10, 20, 30].map(step => ({ step, name: 'loss', value: 40 - step }));
  return run;
}

const show = async (run: Run, options: ViewOptions): Promise<HTMLElement> =>
  (await showView(run, options)).node;

const insight = (node: HTMLElement): HTMLButtonElement =>
  node.querySelector('.jp-MegalensView-insight') as HTMLButtonElement;

/** Resolves when the run's other views were told of a place. */
const told = (run: Run): Promise<void> =>
  new Promise(resolve => {
    const heard = (): void => {
      run.link.changed.disconnect(heard);
      resolve();
    };
    run.link.changed.connect(heard);
  });

it('shows the sentence that screen readers get above the picture', async () => {
  const node = await show(runOf(), { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' });
  expect(insight(node).textContent).toContain('−90, is in layer 2 at position 1, tile 2');
  expect(node.querySelector('.jp-MegalensStage')?.getAttribute('aria-label')).toContain(
    insight(node).textContent
  );
});

it('goes to the cell that the sentence names, and tells the run’s other views', async () => {
  const run = runOf();
  const node = await show(run, { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' });
  insight(node).click();
  await told(run);
  expect(run.link.pointed?.at).toEqual({ layer: 2, step: 30 });
  expect(node.querySelector('[aria-live]')?.textContent).toContain('value −90');
  expect(document.activeElement).toBe(node.querySelector('.jp-MegalensStage'));
});

it.each<ViewOptions>([
  { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'min' },
  { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'min', kind: 'heatmap' }
])('goes to the step at which a trend moved most', async options => {
  const run = runOf();
  const node = await show(run, options);
  insight(node).click();
  await told(run);
  expect(run.link.pointed?.at).toEqual({ layer: 2, step: 30 });
});

it('goes to the end of a scalar', async () => {
  const run = runOf();
  const node = await show(run, { view: 'scalars' });
  insight(node).click();
  await told(run);
  expect(run.link.pointed?.at.step).toBe(30);
});

it.each<ViewOptions>([
  { view: 'trend', flag: 'MLP1_mat_mul' },
  { view: 'trend', flag: 'MLP1_mat_mul', kind: 'heatmap' },
  { view: 'scalars' },
  { view: 'history', flag: 'MLP1_mat_mul' }
])('marks what happened under the step axis, in still pictures too: %j', async options => {
  const run = runOf();
  run.happened = EVENTS;
  const [still] = await readView(run, options);
  const marks = still?.recipe?.datasets['events'] ?? [];
  expect(marks.map(({ kind, text }) => [kind, text])).toEqual([
    ['settings', 'step 10: Tile(96) → Tile(48), by ada'],
    ['lost', 'steps 21 to 24: 4 steps did not arrive']
  ]);
  expect(marks[0]).toMatchObject({ x: 10, x2: 10 });
  expect(Number(marks[1]?.['x'])).toBeLessThanOrEqual(21);
  const node = await show(run, options);
  expect(node.querySelectorAll('.mark-symbol.role-mark path[aria-label^="step"]').length).toBeGreaterThan(0);
  expect(node.querySelectorAll('.jp-MegalensEvent').length).toBe(2);
});

it('says what happened at a mark, and marks its step in the run’s other views', async () => {
  const run = runOf();
  run.happened = EVENTS;
  const node = await show(run, { view: 'trend', flag: 'MLP1_mat_mul' });
  const [mark] = node.querySelectorAll<HTMLElement>('.jp-MegalensEvent');
  expect(mark?.title).toBe('step 10: Tile(96) → Tile(48), by ada');
  mark?.dispatchEvent(new MouseEvent('pointerenter'));
  await told(run);
  expect(run.link.pointed?.at).toEqual({ layer: null, step: 10 });
});

it('marks what goes on up to the newest step', async () => {
  const run = runOf();
  run.happened = [{ kind: 'perturbation', first: 20, last: Infinity, text: 'noise' }];
  const [still] = await readView(run, { view: 'trend', flag: 'MLP1_mat_mul' });
  expect(still?.recipe?.datasets['events']).toMatchObject([
    { x: 20, x2: 30, text: 'from step 20 on: noise' }
  ]);
});

it('draws a picture whose run cannot say what happened', async () => {
  const run = runOf();
  run.events = () => Promise.reject(new Error('gone'));
  const [still] = await readView(run, { view: 'trend', flag: 'MLP1_mat_mul' });
  expect(still?.recipe?.datasets['events'] ?? []).toEqual([]);
});

it('draws many events as few marks, none of them lost', () => {
  const many = Array.from({ length: 5000 }, (_, at): IRunEvent => ({
    kind: at % 2 ? 'settings' : 'alarm',
    first: at,
    last: at,
    text: 'x'
  }));
  const few = fewEvents(many, untranslated);
  expect(few.length).toBeLessThanOrEqual(202);
  expect(few.reduce((sum, { text }) => sum + (text === 'x' ? 1 : parseInt(text, 10)), 0)).toBe(5000);
  expect(few[0]?.text).toMatch(/^\d+ (alarms|changes of settings)$/);
});
