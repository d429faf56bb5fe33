import type { ITip } from '../shared/tip';
import { element } from './dom';

/** A small box beside the pointer that never covers what it speaks of and takes no pointer events. */
export class Tooltip {
  constructor(private readonly _stage: HTMLElement) {
    this.node = element('div', { class: 'jp-MegalensTooltip', 'aria-hidden': 'true', hidden: '' });
    _stage.append(this.node);
  }

  readonly node: HTMLElement;

  /** Show beside a point given in pixels from the stage's upper left corner. */
  show(tip: ITip, left: number, top: number): void {
    const lines = tip.lines.map(line => {
      const name = element('span', { class: 'jp-MegalensTooltip-name' }, line.name);
      if (line.color) {
        const swatch = element('span', { class: 'jp-MegalensSwatch' });
        swatch.style.background = line.color;
        name.prepend(swatch);
      }
      return element('div', { class: 'jp-MegalensTooltip-line' }, name, element('span', {}, line.value));
    });
    this.node.replaceChildren(element('div', { class: 'jp-MegalensTooltip-heading' }, tip.heading), ...lines);
    this.node.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const right = left + 14 + width <= this._stage.clientWidth;
    const x = right ? left + 14 : Math.max(0, left - 14 - width);
    const y = Math.min(Math.max(0, top - height / 2), Math.max(0, this._stage.clientHeight - height));
    this.node.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }

  hide(): void {
    this.node.hidden = true;
  }
}
