import type { IDisposable } from '@lumino/disposable';
import { formatInteger } from '../../charts/format';
import { isOver } from '../../store/is-over';
import type { IRunSource } from '../../store/source';
import { element } from './dom';
import { perturbText } from '../shared/perturb-text';
import type { Translate } from '../shared/translate';

/** Says over a view that the training is perturbed now, until it is not: what is drawn then is not the model's own doing. */
export class ArmedChip implements IDisposable {
  constructor(
    private readonly _source: IRunSource,
    private readonly _t: Translate
  ) {
    _source.changed.connect(this._tell, this);
    this._tell();
  }

  readonly node = element('p', { class: 'jp-MegalensArmedChip', role: 'status', hidden: '' });

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._source.changed.disconnect(this._tell, this);
    this.node.remove();
  }

  private _tell(): void {
    const words = armedWords(this._source, this._t);
    // A reader of the screen is told of changes only.
    if (words !== this.node.textContent) {
      this.node.textContent = words;
      this.node.hidden = words === '';
    }
  }

  private _isDisposed = false;
}

/** What is armed now and how long, or nothing: it also ends by itself, and with the training. */
function armedWords(source: IRunSource, t: Translate): string {
  const armed = source.hello?.config.perturb ?? null;
  const ended = armed?.until !== undefined && (source.status?.step ?? 0) > armed.until;
  if (armed === null || ended || isOver(source)) {
    return '';
  }
  const what = perturbText(armed, source.hello?.sites ?? []);
  return armed.until === undefined
    ? t('Perturbed: %1', what)
    : t('Perturbed until step %1: %2', formatInteger(armed.until), what);
}
