import { Zoom } from '../charts/zoom';
import { element } from '../views/mount/dom';
import { Tooltip } from '../views/mount/tooltip';
import { canUnpack } from './half';
import { LiveChart } from './live-chart';
import type { ILiveView, IPayload } from './payload';
import { Steps, stepWords } from './steps';
import {
  cellTips,
  momentCellTips,
  momentTips,
  scalarTips,
  trendCellTips,
  trendTips,
  type Tips
} from './tips';

/**
 * Make one figure of the page live: the running chart takes the place of the static picture, which stays when anything fails.
 *
 * @returns What undoes it.
 */
export async function enliven(
  figure: HTMLElement,
  live: ILiveView,
  layers: IPayload['layers']
): Promise<() => void> {
  const still = figure.querySelector<HTMLElement>('.picture');
  if (!still) {
    return () => undefined;
  }
  const stage = element('div', { class: 'stage', tabindex: '0', role: 'group', 'aria-label': 'chart, live' });
  const plot = element('div', { class: 'plot' });
  stage.append(plot);
  still.after(stage);
  let chart: LiveChart;
  try {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    chart = await LiveChart.draw(plot, live, dark ? layers.dark : layers.light);
  } catch (error) {
    stage.remove();
    throw error;
  }
  still.hidden = true;
  const steps = new Steps(live, chart);
  const zoom = new Zoom(chart, { axes: live.template === 'heatmap' ? 'xy' : 'x', least: 4 });
  zoom.extent(live.extent.x, live.extent.y);
  const tooltip = new Tooltip(stage);
  const tips = tipsOf(live, steps);
  const move = (event: PointerEvent): void => {
    const place = zoom.isDragging ? null : chart.locate(event);
    const tip = place && tips(place);
    const box = stage.getBoundingClientRect();
    if (tip) {
      tooltip.show(tip, event.clientX - box.left, event.clientY - box.top);
    } else {
      tooltip.hide();
    }
  };
  const leave = (): void => tooltip.hide();
  stage.addEventListener('pointermove', move);
  stage.addEventListener('pointerleave', leave);
  const slider = await addSlider(stage, figure, live, steps);
  return () => {
    zoom.dispose();
    chart.dispose();
    slider?.remove();
    stage.remove();
    still.hidden = false;
  };
}

function tipsOf(live: ILiveView, steps: Steps): Tips {
  switch (live.template) {
    case 'heatmap':
      return cellTips(live, () => steps.shown);
    case 'trend-lines':
      return trendTips(live);
    case 'trend-heatmap':
      return trendCellTips(live);
    case 'scalars':
      return scalarTips(live);
    case 'moment-lines':
      return momentTips(live);
    case 'moment-map':
      return momentCellTips(live);
  }
}

/** Add the step slider of a heatmap that holds several steps. */
async function addSlider(
  stage: HTMLElement,
  figure: HTMLElement,
  live: ILiveView,
  steps: Steps
): Promise<HTMLElement | null> {
  const frames = live.frames ?? [];
  const first = frames.findIndex(frame => frame.step === Number(figure.dataset['step']));
  if (first < 0 || !canUnpack()) {
    return null;
  }
  await steps.show(first, false);
  if (frames.length < 2) {
    return null;
  }
  const words = element('output', { class: 'step' }, stepWords(steps.step));
  const input = element('input', {
    type: 'range',
    min: '0',
    max: String(frames.length - 1),
    value: String(first),
    'aria-label': 'Step',
    'aria-valuetext': stepWords(steps.step)
  });
  const title = figure.querySelector('.step-words');
  input.addEventListener('input', () => {
    void steps.show(Number(input.value)).then(() => {
      words.value = stepWords(steps.step);
      input.setAttribute('aria-valuetext', words.value);
      if (title) {
        title.textContent = words.value;
      }
      // What the text says was said of the first step.
      figure.classList.toggle('moved', Number(input.value) !== first);
    });
  });
  const label = element('label', { class: 'slider' }, 'Step ', input, words);
  stage.before(label);
  return label;
}
