import { SERVE } from '../shared/generation-view';
import { formatInteger } from '../../../../charts';
import { rangesText } from '../../../../protocol/ranges';
import { own } from '../../../../protocol/records';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import type { SourceChange } from '../../../../store/source';
import { pythonCall } from '../../../../views/code';
import type { Loaded } from '../../../../views/shared/content';
import { flagInfo, flagWords } from '../../../../views/shared/describe';
import { layerName } from '../../../../views/shared/layers';
import type { IState } from '../../../../views/shared/states';
import {
  retryAction,
  emptyFlag,
  emptyState,
  nothingYet,
  traceAction,
  snippetState
} from '../../../../views/shared/states';
import { PartModel } from '../../../../views/shared/view-model';
import type { Unprojected, IProjected, ProjectionReader } from './projection-reader';
import { LEAST_POINTS } from './projection-reader';
import { generationWords } from './projection-words';
import { TokenGroup } from './token-group';

/** What the parts of the view share: one reading and projecting. */
export abstract class ProjectionPane extends PartModel<ProjectionOptions, ProjectionReader> {
  get subject(): string {
    const { flag, part } = this.chosen;
    return flagWords(this.source.hello, flag, part ?? this.reader.shape.parts[0] ?? null, this.t);
  }

  concerns(change: SourceChange): boolean {
    return this.reader.concerns(change);
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const waits = (layer: number): void =>
      this.env.waits(this.t('Projecting %1, %2…', this.subject, layerName(layer, this.t)));
    const found = await this.reader.read(this.chosen, signal, waits);
    if (found.kind === 'projected') {
      return this.show(found);
    }
    return { state: await this._nothing(found) };
  }

  protected abstract show(projected: IProjected): Loaded;

  protected groupOf({ text }: IProjected): TokenGroup {
    return TokenGroup.read(this.chosen.group, text.tokens);
  }

  /** Why there is no picture, and what to do about it. */
  private async _nothing(found: Unprojected): Promise<IState> {
    const { actions, chosen: options, source, t } = this;
    const subject = flagWords(source.hello, options.flag, options.part, t);
    switch (found.kind) {
      case 'no-generation': {
        const numbers = found.generations.map(({ generation }) => generation);
        return numbers.length === 0
          ? snippetState(t('Nothing was generated. In a cell:'), SERVE, actions, t)
          : emptyState(
              t('There is no generation %1. The run has %2.', options.generations, rangesText(numbers)),
              t('Show the newest'),
              () => this.pick({ generations: 'newest' })
            );
      }
      case 'no-token':
        return nothingYet(
          t('The model has not read a token of %1 yet.', generationWords(found.generations, t)),
          actions,
          t
        );
      case 'no-axis':
        return {
          kind: 'empty',
          sentence: t('%1 is no vector of a token: it has no axis of positions.', subject),
          action: this._otherFlag() ?? retryAction(actions, t)
        };
      case 'no-row':
        return this._untraced(
          found.generations.map(({ generation }) => generation),
          subject
        );
      case 'few':
        return nothingYet(
          found.points >= LEAST_POINTS
            ? t(
                'All %1 vectors are equal: there is no direction to draw them along.',
                formatInteger(found.points)
              )
            : t(
                'A projection needs %1 tokens with vectors; here are %2.',
                LEAST_POINTS,
                formatInteger(found.points)
              ),
          actions,
          t
        );
    }
  }

  /** A flag that is traced and has vectors of tokens. */
  private _otherFlag(): IState['action'] | null {
    const { chosen, source, t } = this;
    const { hello } = source;
    const other = hello?.flags.find(
      ({ axes, layers, name }) =>
        name !== chosen.flag &&
        axes[0] === 'position' &&
        axes.length > 1 &&
        layers.length > 0 &&
        own(hello.config.flags, name) !== undefined
    );
    return other
      ? { label: t('Show %1', other.title), run: () => this.pick({ flag: other.name, part: null }) }
      : null;
  }

  private async _untraced(generations: readonly number[], subject: string): Promise<IState> {
    const { actions, chosen, reader, source, t } = this;
    const { flag, layer } = chosen;
    const known = flagInfo(source.hello, flag);
    const other = reader.shape.layers.find(each => each !== layer);
    const there = await source.steps(flag, 'generate', { layers: reader.shape.layers });
    const show =
      other === undefined
        ? []
        : [{ label: t('Show %1', layerName(other, t)), run: () => this.pick({ layer: other }) }];
    if (known && known.layers.length > 0 && !known.layers.includes(layer)) {
      return {
        kind: 'empty',
        sentence: t('%1 has no %2.', subject, layerName(layer, t)),
        action: show[0] ?? retryAction(actions, t)
      };
    }
    const traced = source.hello === null ? undefined : own(source.hello.config.flags, flag);
    if (there.length === 0 && traced === undefined) {
      return emptyFlag(
        source,
        flag,
        'generate',
        { ...actions, chooseFlag: name => this.pick({ flag: name, part: null }) },
        t
      );
    }
    const isOn = (traced?.phases ?? []).includes('generate');
    const trace = known && !isOn ? traceAction(source, known, 'generate', actions, t) : null;
    const code = pythonCall(
      'run.configure',
      [],
      [
        [flag, true],
        ['phases', ['train', 'generate']]
      ]
    );
    return {
      kind: 'empty',
      sentence: t(
        '%1 of %2 was not traced while generation %3 was written. Trace it, and generate again:',
        subject,
        layerName(layer, t),
        rangesText(generations)
      ),
      code,
      action: trace ?? show[0] ?? retryAction(actions, t),
      more: [...(trace === null ? [] : show), { label: t('Copy this line'), run: () => actions.copy(code) }]
    };
  }
}
