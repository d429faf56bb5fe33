import type { ViewOptions } from '../../protocol/views.generated';
import { toCode } from '../code';
import type { IView } from '../view';
import { MemoryRun, rowOf } from '../../store/__tests__/memory-run';
import { control, press, put, showView, text, update } from './page';

let run: MemoryRun;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
});

async function show(options: Partial<ViewOptions> = {}): Promise<void> {
  view = await showView(run, { view: 'history', flag: 'MLP1_mat_mul', ...options } as ViewOptions);
}

type Part = 'map' | 'tensor';
const title = (part: Part): string => text(`.jp-MegalensHistory-${part} .jp-MegalensView-title`);
const caption = (part: Part): string => text(`.jp-MegalensHistory-${part} .jp-MegalensView-caption`);
const fill = (step: number, layer: number): object => ({
  step,
  layer,
  values: new Float32Array(6).fill(step * 10 + layer)
});

it('draws the map and, below it, the newest tensor of the first layer; both follow', async () => {
  run.add(...[1, 2, 3].flatMap(step => [fill(step, 2), fill(step, 4)]));
  await show();
  expect(title('map')).toBe('MLP1 output, rms of layers 2 and 4, steps 1 to 3');
  expect(title('tensor')).toBe('MLP1 output, mean of 2 tiles, layer 2, step 3');
  expect(document.querySelectorAll('.jp-MegalensHistory .jp-MegalensToolbar:not([hidden])')).toHaveLength(1);
  run.add(fill(4, 2), fill(4, 4));
  await view.settled();
  expect(title('map')).toContain('steps 1 to 4');
  expect(title('tensor')).toContain('step 4');
  expect(view.summary()).toContain('At step 4 values run from 42 to 42.');
});

it('scrubs with the slider and goes back to following', async () => {
  run.add(fill(1, 1), fill(2, 1));
  await show();
  await put('steps', '0');
  expect(view.options).toMatchObject({ step: 1 });
  expect(title('tensor')).toContain('step 1');
  control('steps', 'button').click();
  await new Promise<void>(done => setTimeout(done));
  await view.settled();
  expect(view.options).toMatchObject({ step: null });
  expect(title('tensor')).toContain('step 2');
});

it('chooses layer and step with the keys, from the tensor that is shown', async () => {
  run.add(...[1, 2, 3].flatMap(step => [fill(step, 1), fill(step, 2)]));
  await show();
  await press('ArrowLeft');
  expect(view.options).toMatchObject({ layer: 1, step: 2 });
  await press('ArrowDown');
  expect(view.options).toMatchObject({ layer: 2, step: 2 });
  expect(title('tensor')).toContain('layer 2, step 2');
  expect(text('.jp-MegalensHistory-map [aria-live]')).toBe('step 2, layer 2: rms 22');
  expect(toCode(view.options as ViewOptions)).toBe('run.history("MLP1_mat_mul", layer=2, step=2)');
});

it('changes flag and statistic of both with one toolbar', async () => {
  run.add(fill(1, 3), { ...fill(1, 4), flag: 'HiddenStates' });
  await show({ layer: 3 } as object);
  await put('statistic', 'max');
  expect(title('map')).toContain('MLP1 output, maximum of layer 3');
  await put('flag', 'HiddenStates');
  expect(view.options).toMatchObject({ flag: 'HiddenStates', layer: null });
  expect(title('map')).toContain('Hidden states, maximum of layer 4');
  expect(title('tensor')).toContain('Hidden states, mean of 2 tiles, layer 4, step 1');
});

it('says in which tiers the page keeps its history, and draws what is left of the oldest', async () => {
  run.limitBytes = 40 * 1624;
  for (let step = 1; step <= 400; step += 1) {
    run.rows.push({ ...rowOf(fill(step, 1)), values: new Float32Array(256).fill(step), shape: [1, 128, 2] });
  }
  await show();
  expect(caption('map')).toMatch(/Kept in this page \([^)]+ of [^)]+\): every tensor after step \d+;/);
  expect(caption('map')).toMatch(/The oldest are statistics of the extremes only: \d+ rows are gone\./);
  expect(caption('map')).toContain('each is drawn up to the next one that is kept');
  await update({ step: 2 });
  expect(caption('tensor')).toContain('Step 2 is not kept any more; this is the nearest one.');
});

it('has one state where nothing is traced, and draws when rows come', async () => {
  await show();
  expect(text('.jp-MegalensHistory-map .jp-MegalensState p')).toContain('first train step has not arrived');
  expect(document.querySelector<HTMLElement>('.jp-MegalensHistory-tensor')?.hidden).toBe(true);
  run.add(fill(1, 3));
  await view.settled();
  await view.settled();
  expect(title('tensor')).toContain('layer 3, step 1');
  expect(document.querySelector<HTMLElement>('.jp-MegalensHistory-tensor')?.hidden).toBe(false);
});

it('exports both pictures as one', async () => {
  run.add(fill(1, 1), fill(2, 1));
  await show();
  const svg = new DOMParser().parseFromString(await view.toSVG(), 'image/svg+xml');
  expect(svg.querySelectorAll(':scope > svg')).toHaveLength(2);
  const ids = [...svg.querySelectorAll('[id]')].map(node => node.id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(Number(svg.documentElement.getAttribute('height'))).toBeGreaterThan(400);
});
