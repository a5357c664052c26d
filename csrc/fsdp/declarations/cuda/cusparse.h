// A declaration that stands in for a CUDA header, of which libtorch's only mention this: nothing is defined or called.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
