import * as React from 'react';

/** What a button of the panel is given, beside what every button takes. */
export interface IPanelButtonProps extends Omit<
  React.ComponentPropsWithoutRef<'button'>,
  'onClick' | 'type'
> {
  /** It does nothing now. It is not disabled: that would let go of the focus that pressed it. */
  readonly idle?: boolean;
  readonly act: () => void;
}

/** A button of the panel. */
export function PanelButton({ idle, act, ...rest }: IPanelButtonProps): React.ReactElement {
  return (
    <button
      className="jp-MegalensButton"
      {...rest}
      type="button"
      aria-disabled={idle}
      onClick={() => !idle && act()}
    />
  );
}
