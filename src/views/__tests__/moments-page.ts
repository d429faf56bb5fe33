import type { StatisticsOptions } from '../../protocol/views.generated';
import { mountView } from '../registry';
import type { IView, IViewHost } from '../view';
import { tensorNames, type IMomentRow } from '../../store/__tests__/memory-moments';
import { MemoryRun } from '../../store/__tests__/memory-run';

const plain = (text: string): string => text.replace(/\u202f/g, ' ').replace(/\u2212/g, '-');
const text = (selector: string): string => plain(document.querySelector(selector)?.textContent ?? '');

/** An explorer on the page, the run that it shows, and what a person reads and presses there. */
export class MomentsPage {
  readonly run = new MemoryRun();
  view: IView | null = null;

  async show(options: Omit<StatisticsOptions, 'view'> = {}, host: IViewHost = {}): Promise<IView> {
    const node = document.createElement('div');
    document.body.append(node);
    this.view = await mountView(
      node,
      this.run,
      { view: 'statistics', ...options },
      { renderer: 'svg', ...host }
    );
    await this.view.settled();
    return this.view;
  }

  /** Take it off the page. */
  close(): void {
    this.view?.dispose();
    document.body.replaceChildren();
  }

  /** Text without thin spaces and true minuses. */
  readonly plain = plain;
  readonly text = text;
  readonly title = (): string => text('.jp-MegalensView-title');
  readonly caption = (): string => text('.jp-MegalensView-caption');
  readonly state = (): string => text('.jp-MegalensState');
  readonly said = (): string => text('[aria-live]');
  /** Lines that are drawn. */
  readonly lines = (): number => document.querySelectorAll('.jp-MegalensPlot .mark-line path').length;

  control<T extends HTMLElement>(id: string, tag: string): T {
    return document.querySelector<T>(`[data-control="${id}"] ${tag}`) as T;
  }

  change(input: HTMLInputElement | HTMLSelectElement, value: string): void {
    input.value = value;
    input.dispatchEvent(new Event(input.type === 'range' ? 'input' : 'change'));
  }

  button(label: string): HTMLButtonElement {
    return [...document.querySelectorAll('button')].find(each =>
      each.textContent?.startsWith(label)
    ) as HTMLButtonElement;
  }

  /** Press a button; what it does begins with the next turn. */
  async click(label: string): Promise<void> {
    this.button(label).click();
    await Promise.resolve();
    await Promise.resolve();
    await this.view?.settled();
  }

  press(key: string, init = {}): void {
    document
      .querySelector('.jp-MegalensStage')
      ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...init }));
  }
}

/** Gradients of a transformer of some layers at steps 1 to `steps`; the deviation is the layer's number and one more. */
export function grads(
  layers: number,
  steps: number,
  of: (step: number, layer: number) => Partial<IMomentRow> = () => ({})
): IMomentRow[] {
  return Array.from({ length: steps }, (_, at) => at + 1).flatMap(step =>
    tensorNames(layers).map(name => {
      const layer = Number(/layers\.(\d+)/.exec(name)?.[1] ?? -1);
      return { step, name, samples: 16 * step, std: layer + 1.5, ...of(step, layer) };
    })
  );
}
