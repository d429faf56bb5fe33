import type { StatisticsOptions } from '../../protocol/views.generated';
import type { IView, IViewHost } from '../view';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { caption, clearPage, key, plain, said, showView, text, title } from './page';

/** An explorer on the page, the run that it shows, and what a person reads and presses there. */
export class MomentsPage {
  readonly run = new MemoryRun();
  view: IView | null = null;

  async show(options: Omit<StatisticsOptions, 'view'> = {}, host: IViewHost = {}): Promise<IView> {
    this.view = await showView(this.run, { view: 'statistics', ...options }, host);
    return this.view;
  }

  readonly close = clearPage;
  readonly plain = plain;
  readonly text = text;
  readonly title = title;
  readonly caption = caption;
  readonly state = (): string => text('.jp-MegalensState');
  readonly said = said;
  readonly press = key;
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
}
