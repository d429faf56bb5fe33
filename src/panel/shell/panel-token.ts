import { Token } from '@lumino/coreutils';
import type { PanelModel } from './panel-model';

/** The sidebar panel; commands act on what it shows. */
export interface IMegalensPanel {
  /** The panel's model, loaded on first use. */
  model(): Promise<PanelModel>;
  reveal(): void;
}

export const IMegalensPanel = new Token<IMegalensPanel>(
  'megalens:IMegalensPanel',
  'The Megalens sidebar panel.'
);
